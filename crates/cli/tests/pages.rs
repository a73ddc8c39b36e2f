//! Verifies the sessions in README and `docs/`: runs each of them and compares the output.
//!
//! A session is a code block of the language `console`. `$ elinvar …` is run, where `examples` is the repository's folder, and the lines
//! after it are its output; `[..]` matches any text within a line, a line `...` any lines. `$ cat FILE` creates a file from the lines after
//! it.
#![cfg(unix)]

mod common;

use std::path::Path;
use std::process::Command;

use common::Folder;

/// A command and the lines after it.
struct Step {
    line: usize,
    command: String,
    output: Vec<String>,
}

/// The sessions of a page.
fn sessions(text: &str) -> Vec<Vec<Step>> {
    let (mut found, mut within) = (Vec::new(), false);
    for (number, line) in text.lines().enumerate() {
        match line {
            "```console" => {
                within = true;
                found.push(Vec::<Step>::new());
            }
            "```" => within = false,
            _ if !within => {}
            line => {
                let steps = found.last_mut().expect("a session has begun");
                match (line.strip_prefix("$ "), steps.last_mut()) {
                    (Some(command), _) => {
                        steps.push(Step {
                            line: number + 1,
                            command: command.to_owned(),
                            output: Vec::new(),
                        });
                    }
                    (None, Some(step)) if step.command.ends_with('\\') => {
                        step.command.pop();
                        step.command.push_str(line.trim_start());
                    }
                    (None, Some(step)) => step.output.push(line.to_owned()),
                    (None, None) => panic!("line {}: no command before `{line}`", number + 1),
                }
            }
        }
    }
    found
}

fn line_fits(pattern: &str, line: &str) -> bool {
    match pattern.split_once("[..]") {
        None => pattern == line,
        Some((before, after)) => line.strip_prefix(before).is_some_and(|rest| {
            (0..=rest.len()).any(|skip| rest.is_char_boundary(skip) && line_fits(after, &rest[skip..]))
        }),
    }
}

fn fits(patterns: &[String], lines: &[&str]) -> bool {
    match (patterns, lines) {
        ([], _) => lines.is_empty(),
        ([dots, rest @ ..], _) if dots == "..." => (0..=lines.len()).any(|skip| fits(rest, &lines[skip..])),
        ([first, rest @ ..], [line, more @ ..]) => line_fits(first, line.trim_end()) && fits(rest, more),
        (_, []) => false,
    }
}

/// Runs a step in `folder`; returns a description of the failure, if any.
fn run(step: &Step, folder: &Path) -> Option<String> {
    // A word in single quotes has no space.
    let unquoted =
        |word| str::strip_prefix(word, '\'').and_then(|word| word.strip_suffix('\'')).unwrap_or(word);
    let words: Vec<&str> = step.command.split_whitespace().map(unquoted).collect();
    match &words[..] {
        ["cat", file] => {
            std::fs::write(folder.join(file), step.output.join("\n") + "\n").expect("a written file");
            None
        }
        ["elinvar", words @ ..] => {
            let program = Path::new(env!("CARGO_BIN_EXE_elinvar"));
            // A verb may start the program again.
            let known = std::env::var_os("PATH").unwrap_or_default();
            let folders =
                program.parent().map(Path::to_owned).into_iter().chain(std::env::split_paths(&known));
            let mut command = Command::new(program);
            command.env("PATH", std::env::join_paths(folders).expect("folders"));
            let output = command.args(words).current_dir(folder).output().expect("elinvar runs");
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8(text).expect("UTF-8");
            let lines: Vec<&str> = text.lines().collect();
            let told = || format!("line {}: $ {}\n{text}", step.line, step.command);
            (!fits(&step.output, &lines)).then(told)
        }
        _ => Some(format!("line {}: no such command: `{}`", step.line, step.command)),
    }
}

#[test]
fn sessions_are_what_the_program_does() {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace").canonicalize();
    let root = root.expect("a path");
    let docs =
        std::fs::read_dir(root.join("docs")).expect("docs/").map(|entry| entry.expect("an entry").path());
    let pages = docs.filter(|path| path.extension().is_some_and(|end| end == "md"));
    let (mut ran, mut wrong) = (0, Vec::new());
    for page in pages.chain([root.join("README.md")]) {
        let text = std::fs::read_to_string(&page).expect("the page");
        for session in sessions(&text) {
            let folder = Folder::new();
            std::os::unix::fs::symlink(root.join("examples"), folder.file("examples")).expect("a link");
            for step in session {
                ran += 1;
                let name = page.strip_prefix(&root).expect("a page of ours").display();
                wrong.extend(run(&step, folder.path()).map(|what| format!("{name}, {what}")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(ran >= 10, "{ran} commands were found");
}

#[test]
fn a_pattern_fits_no_other_output() {
    let fits = |pattern: &str, text: &str| {
        let patterns: Vec<String> = pattern.lines().map(str::to_owned).collect();
        self::fits(&patterns, &text.lines().collect::<Vec<_>>())
    };
    assert!(fits("a [..] c\n...\nz", "a b c\nx\ny\nz") && fits("...", "") && fits("a\n...", "a"));
    assert!(
        !fits("a [..] c", "a b d") && !fits("a", "a\nb") && !fits("a\nb", "a") && !fits("...\nz", "a\ny")
    );
}
