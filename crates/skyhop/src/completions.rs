//! `skyhop completions SHELL`: completions of the command line, made from its definition.

use std::process::ExitCode;

use clap::{CommandFactory, ValueEnum};
use clap_complete::{generate, shells};
use scenario::Preset;

use crate::{Cli, print};

/// `skyhop completions …`
#[derive(clap::Args)]
#[command(after_help = "bash:  skyhop completions bash >/etc/bash_completion.d/skyhop\n\
                        zsh:   skyhop completions zsh >/usr/local/share/zsh/site-functions/_skyhop\n\
                        fish:  skyhop completions fish >~/.config/fish/completions/skyhop.fish")]
pub(crate) struct Args {
    /// Shell that reads them
    shell: Shell,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Prints the completions.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    print(&completions(args.shell))?;
    Ok(ExitCode::SUCCESS)
}

fn completions(shell: Shell) -> String {
    let (mut command, mut text) = (Cli::command(), Vec::new());
    match shell {
        Shell::Bash => generate(shells::Bash, &mut command, "skyhop", &mut text),
        Shell::Zsh => generate(shells::Zsh, &mut command, "skyhop", &mut text),
        Shell::Fish => generate(shells::Fish, &mut command, "skyhop", &mut text),
    }
    let text = String::from_utf8(text).expect("completions are text");
    if shell == Shell::Fish { text + &presets_in_fish() } else { text }
}

/// For fish, `clap_complete` writes no values of arguments without an option.
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

    #[test]
    fn the_names_of_presets_complete_in_every_shell() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let text = completions(shell);
            assert!(text.contains("geo-ka") && text.contains("vsat-dama"), "{shell:?}");
        }
    }
}
