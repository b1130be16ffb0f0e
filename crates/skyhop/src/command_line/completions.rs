//! `skyhop completions SHELL`: completions of the command line, made from its definition.

use std::process::ExitCode;

use clap::{CommandFactory, ValueEnum};
use clap_complete::{generate, shells};
use scenario::Preset;

use crate::{Cli, print};

/// The arguments of `skyhop completions`.
#[derive(clap::Args)]
#[command(after_help = "bash:  skyhop completions bash >/etc/bash_completion.d/skyhop\n\
                        zsh:   skyhop completions zsh >/usr/local/share/zsh/site-functions/_skyhop\n\
                        fish:  skyhop completions fish >~/.config/fish/completions/skyhop.fish")]
pub(crate) struct CompletionsArgs {
    /// Shell that reads them
    shell: CompletionShell,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CompletionShell {
    Bash,
    Zsh,
    Fish,
}

/// Prints the completions for a shell.
pub(crate) fn run(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    print(&completions(args.shell))?;
    Ok(ExitCode::SUCCESS)
}

fn completions(shell: CompletionShell) -> String {
    let mut command = Cli::command();
    let mut text = Vec::new();
    match shell {
        CompletionShell::Bash => generate(shells::Bash, &mut command, "skyhop", &mut text),
        CompletionShell::Zsh => generate(shells::Zsh, &mut command, "skyhop", &mut text),
        CompletionShell::Fish => generate(shells::Fish, &mut command, "skyhop", &mut text),
    }
    let text = String::from_utf8(text).expect("completions are text");
    match shell {
        CompletionShell::Bash => text + LABS_IN_BASH,
        CompletionShell::Zsh => {
            text.lines().map(with_labs_in_zsh).collect::<String>() + LABS_IN_ZSH
        }
        CompletionShell::Fish => text + &presets_in_fish() + LABS_IN_FISH,
    }
}

/// Beginning of the help of arguments that are the name of a running lab.
const LAB_ARGUMENT: &str = "Name of the lab; ";
/// Additional completions: the names of running labs, which the script queries when it needs them.
const LABS_IN_BASH: &str = r#"
_skyhop_with_labs() {
    _skyhop "$@"
    case "${COMP_WORDS[1]}:${COMP_WORDS[2]}:${COMP_WORDS[COMP_CWORD-1]}" in
        lab:down:down|lab:set:set|lab:status:status|lab:exec:--lab)
            local labs
            labs=$(skyhop lab status --names 2>/dev/null)
            COMPREPLY+=($(compgen -W "$labs" -- "${COMP_WORDS[COMP_CWORD]}"))
            ;;
    esac
}
complete -F _skyhop_with_labs -o bashdefault -o default skyhop
"#;
const LABS_IN_ZSH: &str = r#"
_skyhop_labs() {
    local -a labs
    labs=(${(f)"$(skyhop lab status --names 2>/dev/null)"})
    compadd -a labs
}
"#;
const LABS_IN_FISH: &str = r#"complete -c skyhop -n "__fish_seen_subcommand_from lab; and __fish_seen_subcommand_from down set status" -f -a "(skyhop lab status --names 2>/dev/null)"
complete -c skyhop -n "__fish_seen_subcommand_from lab; and __fish_seen_subcommand_from exec" -l lab -x -a "(skyhop lab status --names 2>/dev/null)"
"#;

/// Returns a line of the zsh script, which completes names of running labs if its argument is one.
fn with_labs_in_zsh(line: &str) -> String {
    let action = if line.contains(LAB_ARGUMENT) { ":_skyhop_labs'" } else { ":_default'" };
    line.replace(":_default'", action) + "\n"
}

/// Returns completions of preset names for fish, for which `clap_complete` writes no values of positional
/// arguments.
fn presets_in_fish() -> String {
    let presets: Vec<&str> = Preset::built_in_names().collect();
    format!(
        "complete -c skyhop -n \"__fish_seen_subcommand_from lab; and \
         __fish_seen_subcommand_from run shell up check show\" -a \"{}\"\n",
        presets.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What bash offers after these words, if two labs run.
    fn offered_by_bash(words: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let script = format!(
            "skyhop() {{ [ \"$*\" = 'lab status --names' ] && printf 'geo\\nmine\\n'; }}\n{}\n\
             COMP_WORDS=({words} '')\nCOMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n\
             _skyhop_with_labs skyhop '' \"${{COMP_WORDS[COMP_CWORD-1]}}\"\necho \"${{COMPREPLY[@]}}\"\n",
            completions(CompletionShell::Bash)
        );
        let path = folder.path().join("script");
        std::fs::write(&path, script).unwrap();
        let output = std::process::Command::new("bash").arg(path).output().unwrap();
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn the_names_of_running_labs_complete() {
        for words in ["lab down", "lab set", "lab status", "lab exec --lab"] {
            let offered = offered_by_bash(&format!("skyhop {words}"));
            assert!(offered.trim().ends_with("geo mine"), "{words}: {offered}");
        }
        assert!(!offered_by_bash("skyhop lab up").contains("mine"));
        let zsh = completions(CompletionShell::Zsh);
        assert_eq!(zsh.matches(":_skyhop_labs'").count(), 4);
        let fish = completions(CompletionShell::Fish);
        assert_eq!(fish.matches("(skyhop lab status --names 2>/dev/null)").count(), 2);
    }

    #[test]
    fn the_names_of_presets_complete_in_every_shell() {
        for shell in [CompletionShell::Bash, CompletionShell::Zsh, CompletionShell::Fish] {
            let text = completions(shell);
            assert!(text.contains("geo-ka") && text.contains("vsat-dama"), "{shell:?}");
        }
    }
}
