//! clang's AST of a translation unit, from `-ast-dump=json`: the nodes with their places in the preprocessed text.
//!
//! clang writes the file of a place only where it differs from the place before it, so places are resolved in document order. A token from
//! a macro of clang's OpenCL header has the place of the macro's name, or of its whole call.

use std::collections::HashMap;

use serde::Deserialize;

use super::text::{call_end, closing, skip_blank};

/// A node. Places are byte offsets into the preprocessed text; `None` for what clang has added.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub id: u64,
    pub kind: String,
    /// Offset of the first byte.
    pub begin: Option<usize>,
    /// Offset behind the last token.
    pub end: Option<usize>,
    /// Offset of a declaration's name.
    pub at: Option<usize>,
    /// Whether the first and the last token are from a macro of clang's header.
    pub from_header: bool,
    pub name: String,
    /// The type as written.
    pub ty: String,
    /// The type without typedefs.
    pub plain: String,
    /// Of `sizeof`.
    pub argument: Option<String>,
    pub opcode: String,
    pub cast: String,
    pub value: String,
    pub storage: String,
    pub inline: bool,
    /// The declaration that it refers to, or that a member access names.
    pub refers: Option<Referred>,
    pub children: Vec<Node>,
}

/// A reference to a declaration.
#[derive(Debug, Default, Clone)]
pub(super) struct Referred {
    pub id: u64,
    pub kind: String,
    pub name: String,
}

impl Node {
    /// The only child, or the first.
    pub fn first(&self) -> Option<&Node> {
        self.children.first()
    }

    /// The expression without parentheses and implicit conversions.
    pub fn bare(&self) -> &Node {
        let mut node = self;
        while matches!(node.kind.as_str(), "ParenExpr" | "ImplicitCastExpr")
            && let Some(inner) = node.first()
        {
            node = inner;
        }
        node
    }

    /// All nodes below it and itself, in document order.
    pub fn walk<'a>(&'a self, visit: &mut dyn FnMut(&'a Node)) {
        visit(self);
        self.children.iter().for_each(|child| child.walk(visit));
    }

    /// Whether it has an attribute of this kind.
    pub fn has(&self, kind: &str) -> bool {
        self.children.iter().any(|child| child.kind == kind)
    }

    /// The body of a function.
    pub fn body(&self) -> Option<&Node> {
        self.children.iter().find(|child| child.kind == "CompoundStmt")
    }

    /// The parameters of a function.
    pub fn params(&self) -> impl Iterator<Item = &Node> {
        self.children.iter().filter(|child| child.kind == "ParmVarDecl")
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawNode {
    id: String,
    kind: String,
    loc: RawLocation,
    range: RawRange,
    name: String,
    #[serde(rename = "type")]
    ty: RawType,
    #[serde(rename = "argType")]
    argument: Option<RawType>,
    opcode: String,
    #[serde(rename = "castKind")]
    cast: String,
    value: serde_json::Value,
    #[serde(rename = "storageClass")]
    storage: String,
    inline: bool,
    #[serde(rename = "referencedDecl")]
    referenced: Option<RawReference>,
    #[serde(rename = "referencedMemberDecl")]
    member: Option<String>,
    /// The label of a `goto`.
    #[serde(rename = "targetLabelDeclId")]
    target: Option<String>,
    /// The declaration of a label.
    #[serde(rename = "declId")]
    label: Option<String>,
    inner: Vec<RawNode>,
    /// Of a list that is shorter than its array: what the rest is, and then the list.
    #[serde(rename = "array_filler")]
    array_filler: Vec<RawNode>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawReference {
    id: String,
    kind: String,
    name: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawType {
    #[serde(rename = "qualType")]
    written: String,
    #[serde(rename = "desugaredQualType")]
    plain: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawRange {
    begin: RawLocation,
    end: RawLocation,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawLocation {
    #[serde(rename = "spellingLoc")]
    spelling: Option<Box<RawLocation>>,
    #[serde(rename = "expansionLoc")]
    expansion: Option<Box<RawLocation>>,
    offset: Option<usize>,
    file: Option<String>,
    #[serde(rename = "tokLen")]
    length: usize,
}

/// Deepest nesting of the JSON text: two levels for each level of the tree.
const DEEPEST: usize = 12_000;

/// The translation unit.
///
/// # Errors
/// A message, if the text is not what clang writes, or is nested too deeply.
pub(super) fn parse(json: &[u8], main: &str, text: &str) -> Result<Node, String> {
    if nesting(json) > DEEPEST {
        return Err("expressions and statements are nested too deeply".into());
    }
    let mut reader = serde_json::Deserializer::from_slice(json);
    reader.disable_recursion_limit();
    let raw = RawNode::deserialize(&mut reader).map_err(|error| format!("clang's AST: {error}"))?;
    let mut places = Places { main, text, is_main: false, ends: HashMap::new() };
    Ok(places.node(raw))
}

/// Depth of the brackets of a JSON text.
fn nesting(json: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for &byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// Resolves places in document order.
struct Places<'a> {
    main: &'a str,
    text: &'a str,
    /// Whether the last place was in the main file.
    is_main: bool,
    /// Ends of calls of header macros, by offset of the name.
    ends: HashMap<usize, usize>,
}

/// A place in the main file.
#[derive(Clone, Copy)]
struct Place {
    begin: usize,
    end: usize,
    from_header: bool,
}

impl Places<'_> {
    fn node(&mut self, raw: RawNode) -> Node {
        let at = self.place(&raw.loc).map(|place| place.begin);
        let begin = self.place(&raw.range.begin);
        let end = self.place(&raw.range.end);
        let refers = match (raw.referenced, raw.member) {
            (Some(found), _) => Some(Referred { id: id(&found.id), kind: found.kind, name: found.name }),
            (None, Some(member)) => {
                Some(Referred { id: id(&member), kind: "FieldDecl".into(), name: raw.name.clone() })
            }
            _ => raw.target.as_ref().or(raw.label.as_ref()).map(|label| Referred {
                id: id(label),
                kind: "LabelDecl".into(),
                name: raw.name.clone(),
            }),
        };
        let plain = raw.ty.plain.unwrap_or_else(|| raw.ty.written.clone());
        let children: Vec<Node> = raw
            .inner
            .into_iter()
            .chain(raw.array_filler.into_iter().skip(1))
            .map(|inner| self.node(inner))
            .collect();
        let mut stop = end.map(|place| place.end);
        if raw.kind == "CStyleCastExpr" {
            stop = stop.max(begin.and_then(|place| self.literal_end(place.begin, children.last())));
        }
        if stop.is_some() && !raw.kind.ends_with("Decl") {
            stop = stop.max(children.iter().filter_map(|child| child.end).max());
        }
        Node {
            id: id(&raw.id),
            kind: raw.kind,
            begin: begin.map(|place| place.begin),
            end: stop,
            at,
            from_header: begin.is_some_and(|p| p.from_header) && end.is_some_and(|p| p.from_header),
            name: raw.name,
            ty: raw.ty.written,
            plain,
            argument: raw.argument.map(|ty| ty.plain.unwrap_or(ty.written)),
            opcode: raw.opcode,
            cast: raw.cast,
            value: match raw.value {
                serde_json::Value::String(text) => text,
                serde_json::Value::Null => String::new(),
                other => other.to_string(),
            },
            storage: raw.storage,
            inline: raw.inline,
            refers,
            children,
        }
    }

    /// The end of `(float4)(x)`, whose parentheses around `x` are in no node.
    fn literal_end(&self, begin: usize, inner: Option<&Node>) -> Option<usize> {
        let open = skip_blank(self.text, closing(self.text, begin)?);
        let is_outside = inner?.begin? > open && self.text[open..].starts_with('(');
        is_outside.then(|| closing(self.text, open))?
    }

    fn place(&mut self, raw: &RawLocation) -> Option<Place> {
        if raw.spelling.is_some() || raw.expansion.is_some() {
            let spelling = raw.spelling.as_ref().and_then(|raw| self.place(raw));
            let expansion = raw.expansion.as_ref().and_then(|raw| self.place(raw));
            return spelling.or_else(|| {
                let Place { begin, end, .. } = expansion?;
                let end = *self.ends.entry(begin).or_insert_with(|| call_end(self.text, end));
                Some(Place { begin, end, from_header: true })
            });
        }
        let offset = raw.offset?;
        if let Some(file) = &raw.file {
            self.is_main = file == self.main;
        }
        self.is_main.then_some(Place { begin: offset, end: offset + raw.length, from_header: false })
    }
}

/// The number of an identity such as `0x55dff870b0d8`.
fn id(text: &str) -> u64 {
    text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or(0)
}
