//! Source locations of instructions, from the module's debug metadata.
//!
//! `!dbg` leads to a `!DILocation`, whose scope leads to a `!DIFile`. Code that was inlined from the
//! compiler's own headers is located at the call in the user's file.

use std::collections::HashSet;
use std::fmt;

use crate::lexer::{self, Kind, Token};
use crate::model::{Attachments, MetadataId, MetadataNode, Module};

/// A file whose name contains this is one of the compiler's own headers.
const INTERNAL_FILE: &str = "elinvar_stdlib";

/// A location in a source file.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Location {
    /// As the compiler named it.
    pub file: String,
    /// 1-based.
    pub line: u32,
    /// 1-based; 0 when unknown.
    pub column: u32,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.column {
            0 => write!(f, "{}:{}", self.file, self.line),
            column => write!(f, "{}:{}:{column}", self.file, self.line),
        }
    }
}

impl Module {
    /// The user's source line of an instruction, or of a function with a `!DISubprogram`: the innermost
    /// one outside the compiler's own headers. `None` without debug metadata or a user's line.
    pub fn location(&self, attachments: &Attachments) -> Option<Location> {
        self.places(attachments).find(|place| !place.file.contains(INTERNAL_FILE))
    }

    /// Whether an instruction is in, or was inlined from, one of these headers of the compiler's, such as `math.h`.
    pub fn is_of_header(&self, attachments: &Attachments, headers: &[&str]) -> bool {
        let mut places = self.places(attachments);
        places.any(|place| {
            let (directory, name) = place.file.rsplit_once('/').unwrap_or_default();
            directory.contains(INTERNAL_FILE) && headers.contains(&name)
        })
    }

    /// The line of an instruction, and those of the calls that it was inlined from, from the innermost on, as far as they have a line and a file.
    fn places(&self, attachments: &Attachments) -> impl Iterator<Item = Location> {
        let mut next = attachments.iter().find(|(kind, _)| kind == "dbg").map(|(_, first)| *first);
        let (mut seen, mut scopes) = (HashSet::new(), HashSet::new());
        std::iter::from_fn(move || {
            loop {
                let id = next.filter(|id| seen.insert(*id))?;
                let node = self.fields(id)?;
                let line = node.number("line").unwrap_or(0);
                let scope = if node.kind == "DILocation" { node.node("scope") } else { Some(id) };
                next = node.node("inlinedAt");
                if line > 0
                    && let Some(file) = scope.and_then(|scope| self.file_of(scope, &mut scopes))
                {
                    return Some(Location { file, line, column: node.number("column").unwrap_or(0) });
                }
            }
        })
    }

    /// The text of a numbered metadata node.
    pub fn metadata_node(&self, id: MetadataId) -> Option<&str> {
        // Named nodes come first, numbered ones in ascending order: so clang writes them.
        let number = |node: &MetadataNode| node.name.parse::<u32>().ok();
        let found = self.metadata.binary_search_by_key(&Some(id.0), number).ok();
        let name = id.0.to_string();
        let node = match found {
            Some(at) => self.metadata.get(at)?,
            None => self.metadata.iter().find(|node| node.name == name)?,
        };
        Some(&node.text)
    }

    /// The name of the file that a scope lies in: its own or that of the nearest scope around it. `None` from
    /// a scope that was `seen` before: its file is known.
    fn file_of(&self, scope: MetadataId, seen: &mut HashSet<MetadataId>) -> Option<String> {
        let mut id = scope;
        while seen.insert(id) {
            let node = self.fields(id)?;
            if let Some(file) = node.node("file") {
                return self.fields(file)?.string("filename");
            }
            id = node.node("scope")?;
        }
        None
    }

    fn fields(&self, id: MetadataId) -> Option<Fields<'_>> {
        let text = self.metadata_node(id)?;
        let tokens = lexer::tokens(text).ok()?;
        let start = usize::from(tokens.first()?.text(text) == "distinct");
        let kind = tokens.get(start)?.text(text).strip_prefix('!')?;
        Some(Fields { kind, text, tokens })
    }
}

/// A specialized node, `!DILocation(line: 7, …)`.
struct Fields<'a> {
    kind: &'a str,
    text: &'a str,
    tokens: Vec<Token>,
}

impl<'a> Fields<'a> {
    /// The first token of a field's value.
    fn value(&self, name: &str) -> Option<(Kind, &'a str)> {
        let at = self.tokens.windows(2).position(|pair| {
            pair[0].kind == Kind::Word && pair[0].text(self.text) == name && pair[1].kind == Kind::Punct(b':')
        })?;
        let token = self.tokens.get(at + 2)?;
        Some((token.kind, token.text(self.text)))
    }

    fn number(&self, name: &str) -> Option<u32> {
        self.value(name)?.1.parse().ok()
    }

    fn node(&self, name: &str) -> Option<MetadataId> {
        self.value(name)?.1.strip_prefix('!')?.parse().ok().map(MetadataId)
    }

    fn string(&self, name: &str) -> Option<String> {
        match self.value(name)? {
            (Kind::String, text) => String::from_utf8(lexer::unescape(&text[1..text.len() - 1])).ok(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: &str = r#"
!llvm.module.flags = !{!0}
!0 = !{i32 2, !"Debug Info Version", i32 3}
!1 = !DIFile(filename: "kernel.metal", directory: "/src")
!2 = !DIFile(filename: "/usr/lib/elinvar_stdlib/math.h", directory: "")
!3 = distinct !DISubprogram(name: "k", scope: !1, file: !1, line: 4, unit: !9)
!4 = distinct !DISubprogram(name: "dot", scope: !2, file: !2, line: 90, unit: !9)
!5 = distinct !DILexicalBlock(scope: !3, file: !1, line: 5, column: 3)
!6 = distinct !DILocation(line: 7, column: 12, scope: !5)
!7 = !DILocation(line: 91, column: 5, scope: !4, inlinedAt: !6)
!8 = !DILocation(line: 91, column: 5, scope: !4)
!10 = !DILocation(line: 0, scope: !3, inlinedAt: !6)
!11 = !DILocation(line: 1, scope: !4, inlinedAt: !11)
!12 = !DILexicalBlock(scope: !12)
!13 = !DILocation(line: 1, scope: !12)
!14 = !DILocation(line: 8, scope: !4, inlinedAt: !15)
!15 = !DILocation(line: 0, scope: !5, inlinedAt: !16)
!16 = !DILocation(line: 9, scope: !5)
"#;

    fn location(id: u32) -> Option<String> {
        let module = Module::parse(METADATA).expect("parses");
        module.location(&vec![("dbg".to_owned(), MetadataId(id))]).map(|l| l.to_string())
    }

    #[test]
    fn of_plain_and_inlined_code() {
        assert_eq!(location(6).as_deref(), Some("kernel.metal:7:12"));
        assert_eq!(location(7).as_deref(), Some("kernel.metal:7:12"), "out of the internal header");
        assert_eq!(location(10).as_deref(), Some("kernel.metal:7:12"), "line 0 is not a line");
        assert_eq!(location(14).as_deref(), Some("kernel.metal:9"), "line 0 of the same scope before it");
        assert_eq!(location(3).as_deref(), Some("kernel.metal:4"), "a function");
    }

    #[test]
    fn the_headers_that_it_was_inlined_from() {
        let module = Module::parse(METADATA).expect("parses");
        let is =
            |id, headers: &[&str]| module.is_of_header(&vec![("dbg".to_owned(), MetadataId(id))], headers);
        assert!(is(7, &["tensor.h", "math.h"]) && is(8, &["math.h"]) && is(14, &["math.h"]));
        assert!(!is(6, &["math.h"]), "the user's own line");
        assert!(!is(7, &["th.h"]) && !is(7, &[]) && !is(6, &["kernel.metal"]), "another file");
    }

    /// Each step of one circle leads into the other: what a walk costs is their sum, not their product.
    #[test]
    fn circles_within_circles_end() {
        const LENGTH: usize = 2000;
        let mut text = String::new();
        for i in 0..LENGTH {
            let next = (i + 1) % LENGTH;
            text += &format!("!{i} = !DILocation(line: 1, scope: !{}, inlinedAt: !{next})\n", LENGTH + i);
        }
        for i in 0..LENGTH {
            text += &format!("!{} = !DILexicalBlock(scope: !{})\n", LENGTH + i, LENGTH + (i + 1) % LENGTH);
        }
        let module = Module::parse(&text).expect("parses");
        for id in 0..100 {
            assert_eq!(module.location(&vec![("dbg".to_owned(), MetadataId(id))]), None);
        }
    }

    #[test]
    fn absent_or_circular_metadata_has_none() {
        for id in [8, 9, 11, 13, 99] {
            assert_eq!(location(id), None, "!{id}");
        }
    }
}
