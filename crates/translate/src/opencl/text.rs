//! The preprocessed text: one file without directives, with the file and line that each of its lines comes from.

/// Preprocessed text.
#[derive(Debug)]
pub(crate) struct Text {
    /// The text. Line markers are empty lines.
    pub text: String,
    /// Offset of each line.
    starts: Vec<usize>,
    /// Where each line is from: index of the file, and number of the line.
    origins: Vec<(usize, u32)>,
    /// Names of the files.
    pub files: Vec<String>,
}

/// A place in the user's files. Lines and columns begin at 1.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Location {
    pub file: String,
    pub line: u32,
    pub column: u32,
}

impl Text {
    /// Reads the output of `clang -E`.
    pub fn new(preprocessed: &str) -> Self {
        Self::of(&without_as_macros(preprocessed))
    }

    /// Reads the output of `clang -E` of another language.
    pub fn of(preprocessed: &str) -> Self {
        let mut text = String::with_capacity(preprocessed.len());
        let (mut starts, mut origins, mut files) = (Vec::new(), Vec::new(), Vec::<String>::new());
        let (mut file, mut line) = (0, 1);
        for row in preprocessed.split_inclusive('\n') {
            starts.push(text.len());
            origins.push((file, line));
            match marker(row) {
                Some((number, name)) => {
                    file = files.iter().position(|known| *known == name).unwrap_or_else(|| {
                        files.push(name);
                        files.len() - 1
                    });
                    line = number;
                    text.push('\n');
                }
                None => {
                    text.push_str(row);
                    line += 1;
                }
            }
        }
        Self { text, starts, origins, files }
    }

    /// Index of the line of an offset.
    pub fn line_of(&self, offset: usize) -> usize {
        self.starts.partition_point(|start| *start <= offset).saturating_sub(1)
    }

    /// Index of the file, and number of the line, that a line is from.
    pub fn origin(&self, line: usize) -> Option<(usize, u32)> {
        self.origins.get(line).copied()
    }

    /// The place of an offset in the user's files.
    pub fn location(&self, offset: usize) -> Location {
        let line = self.line_of(offset);
        let start = self.starts.get(line).copied().unwrap_or(0);
        let (file, number) = self.origin(line).unwrap_or((0, 0));
        let column = u32::try_from(offset.saturating_sub(start)).unwrap_or(0) + 1;
        Location { file: self.files.get(file).cloned().unwrap_or_default(), line: number, column }
    }
}

/// Writes `as_float(x)`, a macro of clang's header, as what it expands to: places of nested macros are lost.
fn without_as_macros(text: &str) -> String {
    let mut edits: Vec<(usize, usize, String)> = Vec::new();
    let mut before = "";
    for (at, token) in tokens(text, 0) {
        if let Some(ty) = token.strip_prefix("as_").filter(|ty| is_type(ty) && !is_word_before(before)) {
            let open = skip_blank(text, at + token.len());
            if text[open..].starts_with('(')
                && let Some(end) = closing(text, open)
            {
                edits.push((at, at + token.len(), "__builtin_astype".into()));
                edits.push((open, open + 1, "((".into()));
                edits.push((end - 1, end, format!("), {ty})")));
            }
        }
        before = token;
    }
    edits.sort_by_key(|edit| edit.0);
    let (mut out, mut at) = (String::with_capacity(text.len()), 0);
    for (from, to, new) in edits {
        out.push_str(&text[at..from]);
        out.push_str(&new);
        at = to;
    }
    out.push_str(&text[at..]);
    out
}

/// Whether a function's declaration, not a call, follows a token.
fn is_word_before(token: &str) -> bool {
    token.starts_with(is_word) && token != "return" && token != "else" && token != "case"
}

/// Whether a word is a scalar or vector type that `as_` can be followed by.
fn is_type(word: &str) -> bool {
    let name = word.trim_end_matches(|c: char| c.is_ascii_digit());
    let lanes = &word[name.len()..];
    let is_scalar =
        super::types::Scalar::named(name).is_some_and(|s| !matches!(s, super::types::Scalar::Bool));
    is_scalar && matches!(lanes, "" | "2" | "3" | "4" | "8" | "16")
}

/// Number and file name of a line marker.
fn marker(row: &str) -> Option<(u32, String)> {
    let (number, rest) = row.strip_prefix("# ")?.split_once(' ')?;
    let number = number.parse().ok()?;
    let rest = rest.trim_end().strip_prefix('"')?;
    let (name, _flags) = rest.rsplit_once('"')?;
    Some((number, name.replace("\\\"", "\"").replace("\\\\", "\\")))
}

/// Offset behind white space and comments.
pub(crate) fn skip_blank(text: &str, mut at: usize) -> usize {
    loop {
        let rest = &text[at..];
        let blank = rest.len() - rest.trim_start().len();
        at += blank;
        let rest = &text[at..];
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if let Some(inside) = rest.strip_prefix("/*") {
            at += inside.find("*/").map_or(rest.len(), |end| end + 4);
        } else {
            return at;
        }
    }
}

/// Offset behind the call of a macro whose name ends at an offset; the same offset if no `(` follows.
pub(crate) fn call_end(text: &str, name_end: usize) -> usize {
    let open = skip_blank(text, name_end.min(text.len()));
    if text[open..].starts_with('(') { closing(text, open).unwrap_or(name_end) } else { name_end }
}

/// Offset behind the bracket that closes the one at an offset.
pub(crate) fn closing(text: &str, open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, token) in tokens(text, open) {
        match token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + token.len());
                }
            }
            _ => {}
        }
    }
    None
}

/// The tokens from an offset on: words and numbers, literals, and single other characters.
pub(crate) fn tokens(text: &str, from: usize) -> impl Iterator<Item = (usize, &str)> {
    let mut at = from;
    std::iter::from_fn(move || {
        at = skip_blank(text, at);
        let rest = &text[at..];
        let first = rest.chars().next()?;
        let length = if is_word(first) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else if first == '"' || first == '\'' {
            literal(rest, first)
        } else {
            first.len_utf8()
        };
        let begin = at;
        at += length;
        Some((begin, &text[begin..at]))
    })
}

/// The words of a text, outside comments and literals.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    tokens(text, 0)
        .map(|(_, token)| token)
        .filter(|token| token.starts_with(|c: char| is_word(c) && !c.is_ascii_digit()))
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

/// Length of a string or character literal.
fn literal(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + c.len_utf8(),
            '\n' => return at,
            _ => {}
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_their_origin() {
        let text = Text::new("# 1 \"a \\\"b\\\".cl\"\nint a;\n# 7 \"c.h\" 1\nint c;\nint d;\n");
        assert_eq!(text.text, "\nint a;\n\nint c;\nint d;\n");
        let at = |word: &str| text.location(text.text.find(word).unwrap());
        assert_eq!(at("a;"), Location { file: "a \"b\".cl".into(), line: 1, column: 5 });
        assert_eq!(at("int d"), Location { file: "c.h".into(), line: 8, column: 1 });
    }

    #[test]
    fn brackets_in_comments_and_literals_do_not_count() {
        let text = "f /* ( */ (a, ')', \"\\\")\" // )\n, (b)) + 1";
        assert_eq!(&text[call_end(text, 1)..], " + 1");
        assert_eq!(call_end("f + (1)", 1), 1);
        assert_eq!(words("a1 + 2u /* b */ * _c \"d\"").collect::<Vec<_>>(), ["a1", "_c"]);
    }
}
