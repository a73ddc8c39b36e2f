//! Flattens a source to one string for Metal's compiler, which takes a string and finds only Metal's own headers.
//!
//! Source pieces are concatenated, macros become `#define`, and files in the source's include folders replace the directives that include
//! them. `#line` directives keep file names and lines. An include that is in no folder stays, for Metal to find or to reject. Conditions are
//! left to Metal: a file is inserted whether or not its condition holds, and `#pragma once` becomes a condition. The header `<elinvar/launch>` and
//! what stands for Metal's indirect command buffers (`headers`) are put in. Resident kernels, which Metal lacks, become an error.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use elinvar_driver::{Error, Result, Source};

use crate::headers;

/// The header of grid barriers, which `split` replaces, and of groups of threads, which are put in.
const GRID: &str = "elinvar/grid";

/// The headers of resident kernels and their queues, and why they are refused.
const RESIDENT: [&str; 2] = ["elinvar/queue", "elinvar/resident"];
pub(crate) const NO_RESIDENT_KERNELS: &str = "resident kernels on Metal, whose watchdog ends long command buffers, and which does not promise that a waiting threadgroup makes progress";

/// The header of kernels that launch kernels, which is put in.
const LAUNCH: &str = "elinvar/launch";

/// Maximum size of the text; a larger one is taken for unbounded recursive inclusion.
const MOST_BYTES: usize = 256 << 20;

/// The text.
///
/// # Errors
/// `Environment` if a file cannot be read; `Unsupported` if a file includes itself without an include guard.
pub(crate) fn flatten(source: &Source) -> Result<String> {
    let mut flat = Flat {
        folders: &source.include_dirs,
        roots: source.include_roots(),
        open: Vec::new(),
        once: Vec::new(),
        out: String::new(),
        has_grid: false,
    };
    for (name, value) in &source.defines {
        flat.line(format_args!("#define {name} {}", value.as_deref().unwrap_or("1")));
    }
    for file in &source.files {
        flat.append(&file.name, &file.text, None)?;
    }
    if source.files.last().is_some_and(|file| !file.text.ends_with('\n')) {
        flat.out.pop();
    }
    let mut out = flat.out;
    if flat.has_grid && headers::has_groups(&out) {
        out = format!("#line 1 \"{GRID}\"\n{}{out}", headers::GROUPS);
    }
    if headers::has_commands(&out) {
        let (records, commands) = (headers::RECORDS, headers::COMMANDS);
        out = format!("#line 1 \"elinvar/commands\"\n{records}{commands}{out}");
    }
    Ok(out)
}

struct Flat<'a> {
    folders: &'a [PathBuf],
    /// Folder to which includes are restricted; `None` for no restriction.
    roots: Option<Vec<PathBuf>>,
    /// The files that are being inserted.
    open: Vec<PathBuf>,
    /// The files with `#pragma once`, by the number of their macro.
    once: Vec<PathBuf>,
    out: String,
    /// Whether the header of grid barriers is included.
    has_grid: bool,
}

impl Flat<'_> {
    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _written = writeln!(self.out, "{text}");
    }

    fn place(&mut self, line: usize, name: &str) {
        let name = name.replace('\\', "\\\\").replace('"', "\\\"");
        self.line(format_args!("#line {line} \"{name}\""));
    }

    fn append(&mut self, name: &str, text: &str, file: Option<&Path>) -> Result<()> {
        self.place(1, name);
        let mut scan = Scan::default();
        for (index, line) in text.lines().enumerate() {
            if self.out.len() > MOST_BYTES {
                return Err(Error::unsupported(format!(
                    "{name}: the included files exceed {MOST_BYTES} bytes"
                )));
            }
            match scan.directive(line) {
                Some(Directive::Include { path, beside }) => match self.find(path, file.filter(|_| beside)) {
                    Some(found) => {
                        self.include(&found)?;
                        self.place(index + 2, name);
                    }
                    None if path == GRID => {
                        self.has_grid = true;
                        self.line(format_args!(""));
                    }
                    None if path == LAUNCH => {
                        self.place(1, LAUNCH);
                        self.line(format_args!("{}{}", headers::RECORDS, headers::LAUNCH));
                        self.place(index + 2, name);
                    }
                    None if RESIDENT.contains(&path) => {
                        self.line(format_args!("#error \"{NO_RESIDENT_KERNELS}\""))
                    }
                    None => self.line(format_args!("{line}")),
                },
                Some(Directive::Once) if file.is_some() => self.line(format_args!("")),
                _ => self.line(format_args!("{line}")),
            }
        }
        Ok(())
    }

    /// Searches beside the including file, then in the folders.
    fn find(&self, path: &str, includer: Option<&Path>) -> Option<PathBuf> {
        let folders =
            includer.and_then(Path::parent).into_iter().chain(self.folders.iter().map(PathBuf::as_path));
        folders.map(|folder| folder.join(path)).find(|path| path.is_file() && self.permit(path))
    }

    fn permit(&self, path: &Path) -> bool {
        let Some(roots) = &self.roots else { return true };
        std::fs::canonicalize(path).is_ok_and(|file| roots.iter().any(|root| file.starts_with(root)))
    }

    fn include(&mut self, path: &Path) -> Result<()> {
        let name = path.display().to_string();
        let cannot = |error: std::io::Error| Error::Environment(format!("{name}: {error}"));
        let text = std::fs::read_to_string(path).map_err(cannot)?;
        let file = path.canonicalize().map_err(cannot)?;
        let once = is_once(&text);
        if self.open.contains(&file) {
            if once || is_guarded(&text) {
                return Ok(());
            }
            return Err(Error::unsupported(format!("{name} includes itself without an include guard")));
        }
        let number = once.then(|| {
            let known = self.once.iter().position(|other| *other == file);
            known.unwrap_or_else(|| {
                self.once.push(file.clone());
                self.once.len() - 1
            })
        });
        if let Some(number) = number {
            self.line(format_args!("#ifndef ELINVAR_ONCE_{number}\n#define ELINVAR_ONCE_{number}"));
        }
        self.open.push(file);
        self.append(&name, &text, Some(path))?;
        self.open.pop();
        if number.is_some() {
            self.line(format_args!("#endif"));
        }
        Ok(())
    }
}

fn is_once(text: &str) -> bool {
    let mut scan = Scan::default();
    text.lines().any(|line| matches!(scan.directive(line), Some(Directive::Once)))
}

/// Whether the first directive looks like an include guard.
fn is_guarded(text: &str) -> bool {
    let mut scan = Scan::default();
    let first = text.lines().find_map(|line| scan.directive(line));
    matches!(first, Some(Directive::IfNot))
}

enum Directive<'a> {
    Include { path: &'a str, beside: bool },
    Once,
    IfNot,
    Other,
}

/// Lexical state at the start of a line: within a comment, or after a line continuation.
#[derive(Default)]
struct Scan {
    comment: bool,
    continued: bool,
}

impl Scan {
    /// The directive on the next line, if it is one.
    fn directive<'a>(&mut self, line: &'a str) -> Option<Directive<'a>> {
        let begins = !self.comment && !self.continued;
        self.pass(line);
        self.continued = line.ends_with('\\');
        let text = line.trim_start().strip_prefix('#').filter(|_| begins)?.trim_start();
        let end = text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len());
        let rest = text[end..].trim_start();
        Some(match &text[..end] {
            "include" | "import" => match (quoted(rest, '"', '"'), quoted(rest, '<', '>')) {
                (Some(path), _) => Directive::Include { path, beside: true },
                (_, Some(path)) => Directive::Include { path, beside: false },
                _ => Directive::Other,
            },
            "pragma" if rest.split_whitespace().next() == Some("once") => Directive::Once,
            "ifndef" => Directive::IfNot,
            _ => Directive::Other,
        })
    }

    /// Skips to the end of the line, through strings and comments.
    fn pass(&mut self, line: &str) {
        let mut rest = line;
        loop {
            if self.comment {
                let Some(end) = rest.find("*/") else { return };
                (self.comment, rest) = (false, &rest[end + 2..]);
            }
            let Some(at) = rest.find(['"', '/']) else { return };
            let from = &rest[at..];
            rest = if from.starts_with("//") {
                return;
            } else if let Some(inside) = from.strip_prefix("/*") {
                self.comment = true;
                inside
            } else if let Some(inside) = from.strip_prefix('"') {
                behind_string(inside)
            } else {
                &from[1..]
            };
        }
    }
}

fn behind_string(text: &str) -> &str {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            '"' if !escaped => return &text[at + 1..],
            _ => escaped = c == '\\' && !escaped,
        }
    }
    ""
}

fn quoted(text: &str, open: char, close: char) -> Option<&str> {
    let inside = text.strip_prefix(open)?;
    Some(&inside[..inside.find(close)?])
}

#[cfg(test)]
mod tests {
    use elinvar_driver::SourceFile;

    use super::*;

    /// A minimal preprocessor: the lines of the text with file and number, without directives and empty lines. It evaluates only the
    /// conditions of `#pragma once`.
    fn lines(text: &str) -> Vec<String> {
        let (mut name, mut number) = (String::new(), 0);
        let (mut defined, mut skip) = (Vec::new(), 0);
        let mut found = Vec::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["#ifndef", word] => skip += usize::from(skip > 0 || defined.contains(&word)),
                ["#endif"] => skip = usize::saturating_sub(skip, 1),
                _ if skip > 0 => {}
                ["#line", n, file] => {
                    (number, name) = (n.parse::<usize>().unwrap(), file.trim_matches('"').to_owned());
                    continue;
                }
                ["#define", word] => defined.push(word),
                [] => {}
                _ => found.push(format!("{name}:{number}: {line}")),
            }
            number += 1;
        }
        found
    }

    #[test]
    fn pieces_and_macros_keep_their_places() {
        let mut source = Source::named("a.metal", "one\ntwo").define("A", None).define("F(x)", Some("(x)"));
        source.files.push(SourceFile { name: "b \"c\".metal".into(), text: "three\n".into() });
        let text = flatten(&source).unwrap();
        assert_eq!(
            text,
            "#define A 1\n#define F(x) (x)\n#line 1 \"a.metal\"\none\ntwo\n#line 1 \"b \\\"c\\\".metal\"\nthree\n"
        );
    }

    #[test]
    fn libraries_precede_the_source_with_macros_of_their_own() {
        let library = Source::named("f.metal", "#define N 2\ntwo").define("B", None);
        let source = Source::named("a.metal", "one").define("A", Some("3")).with_library(library);
        let text = flatten(&source.linked().unwrap()).unwrap();
        let lines: Vec<&str> =
            text.lines().filter(|line| !line.starts_with("#line") && !line.is_empty()).collect();
        let expected = "#define A 3|#undef A|#undef B|#define B 1|#define N 2|two|#undef B|#undef N|#undef A|#define A 3|one";
        assert_eq!(lines.join("|"), expected);
    }

    #[test]
    fn resident_kernels_become_an_error_under_their_condition() {
        let source = Source::named("a.metal", "#ifdef G\n#include <elinvar/queue>\n#endif");
        let expected = format!("#line 1 \"a.metal\"\n#ifdef G\n#error \"{NO_RESIDENT_KERNELS}\"\n#endif");
        assert_eq!(flatten(&source).unwrap(), expected);
    }

    #[test]
    fn files_are_put_in_where_they_are_included() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let write = |path: PathBuf, text: &str| std::fs::write(path, text).unwrap();
        write(first.path().join("a.h"), "#pragma once\n#include \"b.h\"\nin a\n");
        write(first.path().join("b.h"), "#ifndef B\n#include \"a.h\"\nin b\n#endif\n");
        write(second.path().join("b.h"), "second\n");
        write(second.path().join("d.h"), "in d\n");
        let text = "x\n/* #include \"a.h\"\n*/ // \"\n # include \"a.h\" // here\ny\n#include <a.h>\n#include <d.h>\n\
                    #include <metal_stdlib>\n#define L \\\n#include <d.h>\nz = \"/*\";\n#include <d.h>";
        let source = Source::named("k", text).include_dir(first.path()).include_dir(second.path());
        let flat = flatten(&source).unwrap();
        let at = |folder: &tempfile::TempDir, rest: &str| format!("{}/{rest}", folder.path().display());
        let expected = [
            "k:1: x".to_owned(),
            "k:2: /* #include \"a.h\"".into(),
            "k:3: */ // \"".into(),
            at(&first, "b.h:3: in b"),
            at(&first, "a.h:3: in a"),
            "k:5: y".into(),
            at(&second, "d.h:1: in d"),
            "k:8: #include <metal_stdlib>".into(),
            "k:9: #define L \\".into(),
            "k:10: #include <d.h>".into(),
            "k:11: z = \"/*\";".into(),
            at(&second, "d.h:1: in d"),
        ];
        assert_eq!(lines(&flat), expected, "{flat}");
    }

    #[test]
    fn a_file_that_includes_itself_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.h"), "#include \"a.h\"\n").unwrap();
        let source = Source::msl("#include \"a.h\"").include_dir(folder.path());
        let error = flatten(&source).unwrap_err().to_string();
        assert!(error.ends_with("a.h includes itself without an include guard"), "{error}");
    }
}
