//! Maps offsets of preprocessed text to file, line and column of the user's source.
//!
//! Lines come from clang's line markers. Columns are found by aligning the tokens of a preprocessed line with those of the
//! original, which differ by macro expansion and white space.

use std::collections::HashMap;

use elinvar_driver::Source;

use crate::lex::{TokenKind, tokenize};

/// Preprocessed text with the sources it was made from.
#[derive(Debug)]
pub(crate) struct SourceMap {
    text: String,
    /// For each line of `text`: offset, file (index into `files`) and line number.
    lines: Vec<(usize, usize, u32)>,
    files: Vec<String>,
    /// Texts of the source's and of included files, by name.
    texts: HashMap<String, String>,
}

/// A location in the user's source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub file: String,
    pub line: u32,
    pub column: u32,
    pub source_line: Option<String>,
}

impl SourceMap {
    /// Build the map of `text`, the output of `clang -E` for `source` and further files with these names and texts. Lines of any
    /// other file, which `#line` may name, are not shown.
    pub(crate) fn new(source: &Source, text: String, mut texts: HashMap<String, String>) -> Self {
        let (mut lines, mut files) = (Vec::new(), vec![String::new()]);
        let (mut at, mut file, mut line) = (0, 0, 0);
        for raw in text.split_inclusive('\n') {
            if let Some((number, name)) = parse_line_marker(raw) {
                file = files.iter().position(|f| *f == name).unwrap_or_else(|| {
                    files.push(name);
                    files.len() - 1
                });
                lines.push((at, file, number));
                line = number;
            } else {
                lines.push((at, file, line));
                line += 1;
            }
            at += raw.len();
        }
        texts.extend(source.files.iter().map(|p| (p.name.clone(), p.text.clone())));
        Self { text, lines, files, texts }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The names of all files that line markers mention.
    pub(crate) fn files(&self) -> &[String] {
        &self.files
    }

    /// File and line at the end of the text.
    pub(crate) fn last_line(&self) -> (String, u32) {
        self.lines.last().map(|&(_, file, line)| (self.files[file].clone(), line)).unwrap_or_default()
    }

    /// File and line of an offset.
    pub(crate) fn line(&self, offset: usize) -> (String, u32) {
        let index = self.lines.partition_point(|l| l.0 <= offset).saturating_sub(1);
        self.lines.get(index).map(|&(_, file, line)| (self.files[file].clone(), line)).unwrap_or_default()
    }

    /// The location of an offset.
    pub(crate) fn location(&self, offset: usize) -> Location {
        let index = self.lines.partition_point(|l| l.0 <= offset).saturating_sub(1);
        let Some(&(start, file, line)) = self.lines.get(index) else {
            return Location { file: String::new(), line: 0, column: 0, source_line: None };
        };
        let file = self.files[file].clone();
        let end = self.lines.get(index + 1).map_or(self.text.len(), |l| l.0);
        let text = self.file_text(&file);
        let column = text.map_or(0, |t| column(&self.text[start..end], offset - start, t, line));
        let source_line = text.and_then(|t| nth_line(t, line));
        Location { file, line, column, source_line }
    }

    /// A line of a file, without its line terminator.
    pub(crate) fn source_line(&self, file: &str, line: u32) -> Option<String> {
        nth_line(self.file_text(file)?, line)
    }

    fn file_text(&self, file: &str) -> Option<&str> {
        self.texts.get(file).map(String::as_str)
    }
}

fn nth_line(text: &str, line: u32) -> Option<String> {
    let index = (line as usize).checked_sub(1)?;
    text.split('\n').nth(index).map(|l| l.trim_end_matches('\r').to_owned())
}

/// Parse a line marker, `# 12 "file" 1 3`: line and file.
pub(crate) fn parse_line_marker(line: &str) -> Option<(u32, String)> {
    let rest = line.strip_prefix("# ")?;
    let (number, rest) = rest.split_once(" \"")?;
    Some((number.parse().ok()?, unescaped(&rest[..rest.rfind('"')?])))
}

/// Undo clang's escapes: `\"`, `\\`, `\t`, `
/// `, and octal for bytes that are not ASCII.
fn unescaped(name: &str) -> String {
    let mut plain = Vec::with_capacity(name.len());
    let mut bytes = name.bytes().peekable();
    while let Some(byte) = bytes.next() {
        let next = if byte == b'\\' { bytes.next() } else { None };
        plain.push(match next {
            None => byte,
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(digit @ b'0'..=b'7') => {
                let mut code = u32::from(digit - b'0');
                for _ in 0..2 {
                    let Some(digit) = bytes.next_if(|b| (b'0'..=b'7').contains(b)) else { break };
                    code = code * 8 + u32::from(digit - b'0');
                }
                code as u8
            }
            Some(other) => other,
        });
    }
    String::from_utf8(plain).unwrap_or_else(|wrong| String::from_utf8_lossy(wrong.as_bytes()).into_owned())
}

/// The 1-based column in line `number` of the original that corresponds to byte `at` of a preprocessed line.
fn column(line: &str, at: usize, original: &str, number: u32) -> u32 {
    let made = tokenize(line);
    let Some(index) = made.iter().rposition(|t| t.start <= at) else { return 1 };
    let starts: Vec<usize> =
        std::iter::once(0).chain(original.match_indices('\n').map(|(i, _)| i + 1)).collect();
    let Some(&start) = starts.get((number as usize).saturating_sub(1)) else { return 0 };
    let end = starts.get(number as usize).copied().unwrap_or(original.len());
    // Tokenized from the start, since a comment may extend into the line.
    let written: Vec<_> = tokenize(original)
        .into_iter()
        .filter(|t| t.start >= start && t.start < end && t.kind != TokenKind::Directive)
        .collect();
    if written.is_empty() {
        return 1;
    }
    let made_texts: Vec<&str> = made.iter().map(|t| &line[t.start..t.end]).collect();
    let written_texts: Vec<&str> = written.iter().map(|t| &original[t.start..t.end]).collect();
    let (target, same) = align(&made_texts, &written_texts, index);
    let inside = if same { at.min(made[index].end) - made[index].start } else { 0 };
    u32::try_from(written[target].start + inside - start + 1).unwrap_or(0)
}

/// The token of `written` that token `index` of `made` corresponds to, and whether they are equal; otherwise it is the macro
/// that expanded to it.
fn align(made: &[&str], written: &[&str], index: usize) -> (usize, bool) {
    let prefix = made.iter().zip(written).take_while(|(a, b)| a == b).count();
    if index < prefix {
        return (index, true);
    }
    let rest = made.len().min(written.len()) - prefix;
    let suffix = made.iter().rev().zip(written.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    if index >= made.len() - suffix {
        return (written.len() - (made.len() - index), true);
    }
    let (a, b) = (&made[prefix..made.len() - suffix], &written[prefix..written.len() - suffix]);
    let last = written.len() - 1;
    if b.is_empty() || a.len() * b.len() > 250_000 {
        return (prefix.min(last), false);
    }
    let pairs = common_subsequence(a, b);
    let inner = index - prefix;
    match pairs.iter().rev().find(|(i, _)| *i <= inner) {
        Some(&(i, j)) if i == inner => (prefix + j, true),
        Some(&(_, j)) => ((prefix + j + 1).min(last), false),
        None => (prefix, false),
    }
}

/// Index pairs of a longest common subsequence.
fn common_subsequence(a: &[&str], b: &[&str]) -> Vec<(usize, usize)> {
    let width = b.len() + 1;
    let mut best = vec![0u32; (a.len() + 1) * width];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            best[i * width + j] = if a[i] == b[j] {
                best[(i + 1) * width + j + 1] + 1
            } else {
                best[(i + 1) * width + j].max(best[i * width + j + 1])
            };
        }
    }
    let (mut pairs, mut i, mut j) = (Vec::new(), 0, 0);
    while i < a.len() && j < b.len() {
        if a[i] == b[j] && best[i * width + j] == best[(i + 1) * width + j + 1] + 1 {
            pairs.push((i, j));
            i += 1;
            j += 1;
        } else if best[(i + 1) * width + j] >= best[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers() {
        assert_eq!(parse_line_marker("# 12 \"a\\\\b\\\"c\" 1 3\n"), Some((12, "a\\b\"c".into())));
        assert_eq!(parse_line_marker("# 1 \"\\303\\251\\t\\n\\0010\" 2\n"), Some((1, "é\t\n\u{1}0".into())));
        assert_eq!(parse_line_marker("#pragma x"), None);
        assert_eq!(parse_line_marker("# x \"y\""), None);
    }

    #[test]
    fn columns_survive_blanks_macros_and_comments() {
        let original = "#define TWO 2\n/* a\n */ x   =  TWO +\ty ;";
        let source = Source::named("k", original);
        let made = "# 1 \"k\"\n\n\n    x = 2 + y ;\n";
        let source_map = SourceMap::new(&source, made.into(), HashMap::new());
        let column_of = |needle: &str| {
            let location = source_map.location(made.rfind(needle).unwrap());
            (location.line, location.column)
        };
        assert_eq!(column_of("x ="), (3, 5));
        assert_eq!(column_of("= 2"), (3, 9));
        assert_eq!(column_of("2 +"), (3, 12));
        assert_eq!(column_of("+ y"), (3, 16));
        assert_eq!(column_of("y ;"), (3, 18));
        assert_eq!(source_map.location(made.len() - 1).column, 21);
        assert_eq!(source_map.location(8).source_line.as_deref(), Some("#define TWO 2"));
    }

    #[test]
    fn what_a_macro_made_points_at_the_macro() {
        let (made, written) =
            (["a", "(", "b", "+", "b", ")", "*", "c"], ["a", "SUM", "(", "b", ")", "*", "c"]);
        assert_eq!(align(&made, &written, 0), (0, true));
        assert_eq!(align(&made, &written, 6), (5, true));
        let (target, same) = align(&made, &written, 4);
        assert!(target <= 4, "{target} {same}");
        assert_eq!(align(&["1", "2"], &["M"], 1), (0, false));
        // What both begin with is not what both end with, too.
        assert_eq!(align(&["a", "a"], &["a"], 1), (0, false));
    }
}
