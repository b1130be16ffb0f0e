//! A terminal window is closed while a lab runs in it.

use std::io::Write;

use super::stays::Stays;
use crate::common::terminal::{await_text, on_a_terminal};
use crate::common::{Remains, as_each_user};

#[test]
fn a_closed_terminal_leaves_nothing_of_the_lab_in_it() {
    as_each_user(|runner| {
        let mut shell = runner.lab(&["shell", "geo"]);
        shell.env("SHELL", "/bin/sh");
        let (mut supervisor, mut terminal) = on_a_terminal(shell);
        // Matches the shell's output, not the echo of the input.
        terminal.write_all(b"sleep 1000 & echo rea''dy\n").unwrap();
        await_text(&mut terminal, "ready");
        let remains = Remains::of(supervisor.id());
        drop(terminal);
        // 129, or the shell's exit code for an unreadable terminal.
        assert!(supervisor.wait().unwrap().code().is_some_and(|code| code != 0));
        remains.assert_gone();
    });
}

#[test]
fn a_closed_terminal_ends_a_shell_in_a_lab_and_not_the_lab() {
    as_each_user(|runner| {
        let stays = Stays::new(runner);
        stays.up("one", &[]);
        let mut shell = stays.lab(&["exec", "client"]);
        shell.env("SHELL", "/bin/sh");
        let (mut command, mut terminal) = on_a_terminal(shell);
        terminal.write_all(b"echo rea''dy\n").unwrap();
        await_text(&mut terminal, "ready");
        drop(terminal);
        command.wait().unwrap();
        assert_eq!(stays.status("one")["name"], "one");
    });
}
