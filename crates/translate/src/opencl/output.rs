//! Puts the pieces together: the header, the helpers that are used, and the declarations with the comments before them.

use std::collections::HashSet;

use super::helpers::Helpers;
use super::text::{Text, tokens, words};

/// A declaration at file scope.
#[derive(Debug)]
pub(super) struct Piece {
    /// Offset behind the piece before it.
    pub gap: usize,
    /// Range of the source that it stands for.
    pub begin: usize,
    pub end: usize,
    /// Its text in MSL; empty if it is left out.
    pub text: String,
    /// What it declares.
    pub names: Vec<String>,
    /// The function that it declares.
    pub function: Option<usize>,
}

/// Writes a program.
pub(super) struct Output<'a> {
    pub text: &'a Text,
    pub helpers: &'a Helpers,
    pub lines: bool,
    /// Indices of the source's own files.
    pub main: Vec<usize>,
}

impl Output<'_> {
    /// The program with these pieces. Of included files, and of variables, only what is used is kept.
    pub fn write(&self, pieces: Vec<Piece>) -> String {
        let mut used: HashSet<String> = HashSet::new();
        let mut kept = Vec::new();
        for piece in pieces.iter().rev().filter(|piece| !piece.text.is_empty()) {
            let is_used = piece.function.is_some() || piece.names.iter().any(|name| used.contains(name));
            let is_type = !piece.text.starts_with("constant ") && self.is_main(piece.begin);
            if is_used || is_type {
                used.extend(words(&piece.text).map(str::to_owned));
                kept.push(piece);
            }
        }
        kept.reverse();
        let mut out = String::from("#include <metal_stdlib>\n");
        if used.contains("os_log_default") {
            out.push_str("#include <metal_logging>\n");
        }
        out.push_str("using namespace metal;\n");
        // OpenCL C computes as IEEE 754 says; Metal's default is fast math.
        out.push_str("#pragma METAL fp math_mode(safe)\n");
        let is_off = |line: &str| line.trim_start().starts_with("#pragma OPENCL FP_CONTRACT OFF");
        if self.text.text.lines().any(is_off) {
            out.push_str("#pragma METAL fp contract(off)\n");
        }
        for helper in self.helpers.used_by(&mut used) {
            out.push('\n');
            out.push_str(helper);
            out.push('\n');
        }
        out.push('\n');
        let mut lines = Lines { out, text: self.text, directives: self.lines, expected: None, blank: 1 };
        let mut last = 0;
        for piece in kept {
            for (number, (offset, row)) in self.comments(piece).into_iter().enumerate() {
                // What stands behind the piece before it, on its line.
                if number == 0 && offset > 0 && offset == piece.gap {
                    if !row.trim().is_empty() && last == offset {
                        lines.append(&row);
                    }
                    continue;
                }
                lines.row(offset, &row);
            }
            last = piece.end;
            let mut offset = piece.begin;
            for row in piece.text.split('\n') {
                let is_pragma = row.trim_start().starts_with("#pragma OPENCL");
                lines.row(offset, if is_pragma { "" } else { row });
                offset = next_line(&self.text.text, offset);
            }
        }
        lines.out
    }

    fn is_main(&self, offset: usize) -> bool {
        self.text.origin(self.text.line_of(offset)).is_some_and(|(file, _)| self.main.contains(&file))
    }

    /// The comments before a piece, by line, with the offset of each line. The comment at the beginning of a file is that of the file.
    fn comments(&self, piece: &Piece) -> Vec<(usize, String)> {
        let text = &self.text.text;
        let gap = text.get(piece.gap..piece.begin).unwrap_or("");
        let mut rows: Vec<(usize, String)> = Vec::new();
        let mut at = piece.gap;
        let mut in_comment = false;
        for row in gap.split_inclusive('\n') {
            let line = row.trim_end_matches('\n');
            let begin = line.trim_start();
            let is_pragma = begin.starts_with("#pragma") && !line.contains("OPENCL");
            let keep = if in_comment || begin.starts_with("/*") || begin.starts_with("//") || is_pragma {
                line.to_owned()
            } else if line.contains("/*") || line.contains("//") {
                without_tokens(line)
            } else {
                String::new()
            };
            in_comment = still_open(line, in_comment);
            let file = self.text.origin(self.text.line_of(at)).map(|(file, _)| file);
            let piece_file = self.text.origin(self.text.line_of(piece.begin)).map(|(file, _)| file);
            if file == piece_file {
                rows.push((at, keep));
            }
            at += row.len();
        }
        // The last row stands before the declaration, on its line.
        if !gap.ends_with('\n') {
            rows.pop();
        }
        rows
    }
}

/// Whether a block comment is open behind a line.
fn still_open(line: &str, mut open: bool) -> bool {
    let mut rest = line;
    loop {
        if open {
            match rest.find("*/") {
                Some(end) => rest = &rest[end + 2..],
                None => return true,
            }
            open = false;
        } else {
            match (rest.find("/*"), rest.find("//")) {
                (Some(block), line) if line.is_none_or(|line| block < line) => {
                    rest = &rest[block + 2..];
                    open = true;
                }
                _ => return false,
            }
        }
    }
}

/// The comments of a line.
fn without_tokens(line: &str) -> String {
    let (mut out, mut at) = (String::new(), 0);
    for (begin, token) in tokens(line, 0) {
        out.push_str(&line[at..begin]);
        at = begin + token.len();
    }
    out.push_str(&line[at..]);
    out
}

fn next_line(text: &str, offset: usize) -> usize {
    text.get(offset..).and_then(|rest| rest.find('\n')).map_or(text.len(), |end| offset + end + 1)
}

/// Lines of the output, with `#line` directives where the next line is not the next one of its file.
struct Lines<'a> {
    out: String,
    text: &'a Text,
    directives: bool,
    /// File and number of the next line, if it needs no directive.
    expected: Option<(usize, u32)>,
    /// Blank lines at the end of the output.
    blank: usize,
}

impl Lines<'_> {
    /// Adds a comment to the last line.
    fn append(&mut self, row: &str) {
        let end = self.out.trim_end().len();
        self.out.truncate(end);
        self.out.push_str(row.trim_end());
        self.out.push('\n');
        self.blank = 0;
    }

    fn row(&mut self, offset: usize, row: &str) {
        if row.trim().is_empty() {
            // Several are one.
            if self.blank == 0 {
                self.out.push('\n');
                self.expected = self.expected.map(|(file, line)| (file, line + 1));
            }
            self.blank += 1;
            return;
        }
        self.blank = 0;
        let origin = self.text.origin(self.text.line_of(offset));
        if self.directives
            && origin != self.expected
            && let Some((file, line)) = origin
        {
            let name = self.text.files.get(file).map_or("", String::as_str);
            let name = name.replace('\\', "\\\\").replace('"', "\\\"");
            self.out.push_str(&format!("#line {line} \"{name}\"\n"));
        }
        self.out.push_str(row.trim_end());
        self.out.push('\n');
        self.expected = origin.map(|(file, line)| (file, line + 1));
    }
}
