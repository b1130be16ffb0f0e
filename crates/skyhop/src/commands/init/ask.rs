//! The questions of `skyhop init`. Each takes one line, so that it works on every terminal and with a
//! screen reader. Answers are validated at once. Ctrl-C ends the program before anything is written.

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use gateway::doctor::{clients_interface, interface_names};

use super::{AUTO, DIRECTORY, INTERFACE, InitArgs, InitRole, NAME, valid};

/// Writes questions to `output`, and reads answers from `input`.
pub(super) struct SetupDialogue<R, W> {
    input: R,
    output: W,
}

impl<R: BufRead, W: Write> SetupDialogue<R, W> {
    pub(super) fn new(input: R, output: W) -> Self {
        Self { input, output }
    }

    /// Asks for all settings; only the directory may be `given`.
    pub(super) fn ask_all(&mut self, given: &InitArgs) -> Result<InitArgs> {
        writeln!(
            self.output,
            "Configurations with fresh keys. Enter takes the answer in brackets; Ctrl-C stops, and \
             nothing is written.\n"
        )?;
        let roles = "What to set up: pair (a hub and a terminal), terminal (a further one of a hub), \
                     solo (a single gateway)";
        let role = self.ask(roles, Some("pair"), role)?;
        let directory = match &given.directory {
            Some(directory) => directory.clone(),
            None => {
                let free = |text: &str| is_free(PathBuf::from(text), own_file(role));
                self.ask("Directory for the files", Some(DIRECTORY), free)?
            }
        };
        let mut args = InitArgs { role: Some(role), ..InitArgs::default() };
        if role != InitRole::Solo {
            self.ask_for_pair(role, &directory, &mut args)?;
        }
        args.interface = Some(self.interface(role)?);
        if role != InitRole::Solo {
            self.ask_for_rates(role, &mut args)?;
        }
        args.directory = Some(directory);
        writeln!(self.output)?;
        Ok(args)
    }

    fn ask_for_pair(
        &mut self,
        role: InitRole,
        directory: &Path,
        args: &mut InitArgs,
    ) -> Result<()> {
        let hub = "Address where terminals reach the hub, with its UDP port (hub.example.net:5900)";
        args.hub = Some(self.ask(hub, None, valid::hub)?);
        if role == InitRole::Terminal {
            args.hub_key = Some(self.ask("The hub's public key", None, valid::key)?);
        }
        let name = |text: &str| {
            let name = valid::name(text)?;
            is_free(directory.to_owned(), &format!("{name}.toml")).map(|_| name)
        };
        args.name = Some(self.ask("Name of the terminal", Some(NAME), name)?);
        Ok(())
    }

    fn ask_for_rates(&mut self, role: InitRole, args: &mut InitArgs) -> Result<()> {
        let how = "such as 50Mbit/s; auto measures it; modem: the modem reports it";
        if role == InitRole::Pair {
            let question = format!("Rate of the forward link, hub to terminal ({how})");
            args.hub_rate = Some(self.ask(&question, Some(AUTO), valid::rate)?);
        }
        let question = format!("Rate of the return link, terminal to hub ({how})");
        args.terminal_rate = Some(self.ask(&question, Some(AUTO), valid::rate)?);
        let is_auto = |rate: &Option<String>| rate.as_deref() == Some(AUTO);
        if is_auto(&args.hub_rate) || is_auto(&args.terminal_rate) {
            let question = "Is every byte of the link paid for? yes or no";
            args.metered = self.ask(question, Some("no"), yes_or_no)?;
        }
        Ok(())
    }

    /// Asks for the interface towards the clients. A name that this machine does not have is accepted when
    /// it is entered a second time, because the terminal may be another machine. The proposed name is always
    /// accepted.
    fn interface(&mut self, role: InitRole) -> Result<String> {
        let names = interface_names();
        let usual = clients_interface().unwrap_or_else(|| INTERFACE.to_owned());
        let whose = if role == InitRole::Solo { "The" } else { "The terminal's" };
        let question = format!("{whose} interface towards the clients; here: {}", names.join(", "));
        let mut doubted = None;
        let mut answer = |text: &str| {
            let name = valid::interface(text)?;
            if names.contains(&name) || name == usual || doubted.as_ref() == Some(&name) {
                return Ok(name);
            }
            let question = format!("this machine has no {name}; enter it again if another has it");
            doubted = Some(name);
            Err(question)
        };
        self.ask(&question, Some(&usual), &mut answer)
    }

    /// Asks a question until the answer is valid.
    fn ask<T>(
        &mut self,
        question: &str,
        usual: Option<&str>,
        mut parse: impl FnMut(&str) -> Result<T, String>,
    ) -> Result<T> {
        let usual_text = usual.map(|usual| format!(" [{usual}]")).unwrap_or_default();
        loop {
            write!(self.output, "{question}{usual_text}: ")?;
            self.output.flush()?;
            let mut line = String::new();
            if self.input.read_line(&mut line).context("cannot read the answer")? == 0 {
                bail!("the input has ended before the last answer: nothing was written");
            }
            let answer = Some(line.trim()).filter(|answer| !answer.is_empty());
            match answer.or(usual).map(&mut parse) {
                Some(Ok(value)) => return Ok(value),
                Some(Err(error)) => writeln!(self.output, "  {error}")?,
                None => writeln!(self.output, "  an answer is needed")?,
            }
        }
    }
}

fn role(text: &str) -> Result<InitRole, String> {
    InitRole::from_str(text, true).map_err(|_| "expected pair, terminal or solo".to_owned())
}

fn yes_or_no(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "yes" | "y" => Ok(true),
        "no" | "n" => Ok(false),
        _ => Err("expected yes or no".to_owned()),
    }
}

/// Returns the name of the file that a role always writes; empty if there is none.
fn own_file(role: InitRole) -> &'static str {
    match role {
        InitRole::Pair => "hub.toml",
        InitRole::Terminal => "",
        InitRole::Solo => "solo.toml",
    }
}

/// Checks that `directory` has no file `name` yet.
fn is_free(directory: PathBuf, name: &str) -> Result<PathBuf, String> {
    if directory.exists() && !directory.is_dir() {
        return Err(format!("{} is not a directory", directory.display()));
    }
    let path = directory.join(name);
    // A link counts, too, even if it leads nowhere: it would be written through.
    if !name.is_empty() && path.symlink_metadata().is_ok() {
        return Err(format!("{} already exists and is not overwritten", path.display()));
    }
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The arguments, and what was shown.
    fn answer(lines: &str) -> (Result<InitArgs>, String) {
        let mut shown = Vec::new();
        let args = SetupDialogue::new(lines.as_bytes(), &mut shown).ask_all(&InitArgs::default());
        (args, String::from_utf8(shown).unwrap())
    }

    #[test]
    fn answers_are_validated_at_once_and_asked_for_again() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("hub.toml"), "").unwrap();
        let taken = directory.path().display();
        let new = directory.path().join("new");
        let lines = format!(
            "router\npair\n{taken}\n{}\n\nhub\nhub.example.net:5901\nhub\nship-1\nno-such0\nno-such0\n\
             fast\n50Mbit/s\n\nmaybe\ny\n",
            new.display()
        );
        let (args, shown) = answer(&lines);
        let args = args.unwrap();
        for said in [
            "expected pair, terminal or solo",
            "hub.toml already exists",
            "an answer is needed",
            "expected an address and a UDP port",
            "not \"hub\"",
            "no no-such0; enter it again",
            "expected a rate",
            "expected yes or no",
        ] {
            assert_eq!(shown.matches(said).count(), 1, "{said} in {shown}");
        }
        assert_eq!((args.role, args.directory), (Some(InitRole::Pair), Some(new)));
        assert_eq!(args.hub.as_deref(), Some("hub.example.net:5901"));
        assert_eq!((args.name.as_deref(), args.metered), (Some("ship-1"), true));
        assert_eq!(args.interface.as_deref(), Some("no-such0"));
        assert_eq!(args.hub_rate.as_deref(), Some("50Mbit/s"));
        assert_eq!(args.terminal_rate.as_deref(), Some("auto"));
    }

    #[test]
    fn a_role_is_asked_only_for_what_it_has() {
        let (solo, shown) = answer("solo\n\nlo\n");
        let solo = solo.unwrap();
        assert_eq!((solo.hub, solo.interface.as_deref()), (None, Some("lo")));
        assert!(!shown.contains("Rate"), "{shown}");
        let key = "HIgo9xNzJMWLKASShiTqIybxZ0U3wGLiUeJ1PKf8ykw=";
        let (terminal, shown) = answer(&format!("terminal\n\nhub:5900\nx\n{key}\n\nlo\n2Mbit/s\n"));
        let terminal = terminal.unwrap();
        assert!(terminal.hub_key.is_some() && terminal.hub_rate.is_none());
        // Nothing is measured.
        assert!(!shown.contains("paid for") && !shown.contains("forward"), "{shown}");
    }

    #[test]
    fn an_end_of_input_is_an_error() {
        let (args, _) = answer("pair\n");
        assert!(args.err().unwrap().to_string().contains("nothing was written"));
    }
}
