//! clang's AST of a CUDA translation unit, from `-ast-dump=json` of the preprocessed text.
//!
//! The text has no directives that expand, so each place is an offset into it. Children that clang leaves out keep their position: their
//! kind is empty.

use serde::Deserialize;

/// A node. Places are byte offsets into the preprocessed text.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub id: u64,
    pub kind: String,
    /// Offset of the first byte; `None` for what clang has added.
    pub begin: Option<usize>,
    /// Offset behind the last token.
    pub end: Option<usize>,
    /// Offset of a declaration's name.
    pub at: Option<usize>,
    pub name: String,
    pub mangled: String,
    /// The type, as written.
    pub ty: String,
    /// The type, without typedefs at its outermost level.
    pub plain: String,
    /// Of `sizeof`, or of a base's initializer.
    pub argument: Option<String>,
    pub opcode: String,
    pub cast: String,
    pub value: String,
    pub storage: String,
    pub is_arrow: bool,
    pub is_postfix: bool,
    pub is_implicit: bool,
    pub is_constexpr: bool,
    pub is_virtual: bool,
    pub is_deleted: bool,
    pub has_init: bool,
    pub has_variable: bool,
    /// What kind of value: `lvalue`, `xvalue`, `prvalue`.
    pub category: String,
    /// The type in which a compound assignment computes.
    pub compute: String,
    /// The declaration that it refers to, or that a member access names.
    pub refers: Option<Referred>,
    /// An earlier declaration of the same entity.
    pub previous: u64,
    /// The class that a declaration outside of it is a member of.
    pub parent: u64,
    pub bases: Vec<String>,
    pub tag: String,
    /// Of a type that a typedef names: the record that it defines.
    pub owned: u64,
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
    pub fn first(&self) -> Option<&Node> {
        self.children.first()
    }

    /// The expression without parentheses, conversions that change nothing, and what clang wraps around values.
    pub fn bare(&self) -> &Node {
        let mut node = self;
        while matches!(
            node.kind.as_str(),
            "ParenExpr"
                | "ImplicitCastExpr"
                | "ExprWithCleanups"
                | "ConstantExpr"
                | "SubstNonTypeTemplateParmExpr"
                | "MaterializeTemporaryExpr"
                | "CXXBindTemporaryExpr"
                | "CXXDefaultArgExpr"
                | "CXXDefaultInitExpr"
        ) && let Some(inner) = node.children.last()
        {
            node = inner;
        }
        node
    }

    /// What a call calls: functions that are arguments of templates are addresses.
    pub fn callee(&self) -> Option<&Node> {
        let mut node = self.first()?.bare();
        while node.kind == "UnaryOperator"
            && matches!(node.opcode.as_str(), "&" | "*")
            && let Some(inner) = node.first()
        {
            node = inner.bare();
        }
        Some(node)
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

    pub fn params(&self) -> impl Iterator<Item = &Node> {
        self.children.iter().filter(|child| child.kind == "ParmVarDecl")
    }

    pub fn is_null(&self) -> bool {
        self.kind.is_empty()
    }

    /// The value that a variable or field is initialized with.
    pub fn initializer(&self) -> Option<&Node> {
        self.children.iter().rev().find(|child| is_expression(&child.kind))
    }
}

/// Whether a node of this kind is an expression.
pub(super) fn is_expression(kind: &str) -> bool {
    kind.ends_with("Expr")
        || kind.ends_with("Literal")
        || kind.ends_with("Operator")
        || kind == "ExprWithCleanups"
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct RawNode {
    id: String,
    kind: String,
    loc: RawLocation,
    range: RawRange,
    name: String,
    mangled_name: String,
    #[serde(rename = "type")]
    ty: RawType,
    arg_type: Option<RawType>,
    opcode: String,
    cast_kind: String,
    value: serde_json::Value,
    storage_class: String,
    is_arrow: bool,
    is_postfix: bool,
    is_implicit: bool,
    constexpr: bool,
    is_constexpr: bool,
    #[serde(rename = "virtual")]
    is_virtual: bool,
    explicitly_deleted: bool,
    has_init: bool,
    has_var: bool,
    value_category: String,
    compute_result_type: RawType,
    referenced_decl: Option<RawReference>,
    referenced_member_decl: Option<String>,
    previous_decl: String,
    parent_decl_context_id: String,
    any_init: Option<RawReference>,
    owned_tag_decl: Option<RawReference>,
    base_init: Option<RawType>,
    bases: Vec<RawBase>,
    tag_used: String,
    inner: Vec<RawNode>,
    /// Of a list that is shorter than its array: what the rest is, and then the list.
    #[serde(rename = "array_filler")]
    array_filler: Vec<RawNode>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawBase {
    #[serde(rename = "type")]
    ty: RawType,
    #[serde(rename = "isVirtual")]
    is_virtual: bool,
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
    #[serde(rename = "expansionLoc")]
    expansion: Option<Box<RawLocation>>,
    offset: Option<usize>,
    #[serde(rename = "tokLen")]
    length: usize,
}

/// Deepest nesting of the JSON text: two levels for each level of the tree.
const DEEPEST: usize = 12_000;

/// The translation unit.
///
/// # Errors
/// A message, if the text is not what clang writes, or is nested too deeply.
pub(super) fn parse(json: &[u8]) -> Result<Node, String> {
    if nesting(json) > DEEPEST {
        return Err("expressions and statements are nested too deeply".into());
    }
    let mut reader = serde_json::Deserializer::from_slice(json);
    reader.disable_recursion_limit();
    let raw = RawNode::deserialize(&mut reader).map_err(|error| format!("clang's AST: {error}"))?;
    Ok(node(raw))
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

fn node(raw: RawNode) -> Node {
    let (begin, end) = (place(&raw.range.begin), place(&raw.range.end));
    let refers = match (raw.referenced_decl, raw.referenced_member_decl) {
        (Some(found), _) => Some(Referred { id: id(&found.id), kind: found.kind, name: found.name }),
        (None, Some(member)) => {
            Some(Referred { id: id(&member), kind: "member".into(), name: raw.name.clone() })
        }
        _ => None,
    };
    // What a constructor's initializer sets.
    let refers = match raw.any_init {
        Some(field) => Some(Referred { id: id(&field.id), kind: field.kind, name: field.name }),
        None => refers,
    };
    let plain = raw.ty.plain.clone().unwrap_or_else(|| raw.ty.written.clone());
    let is_virtual = raw.is_virtual || raw.bases.iter().any(|base| base.is_virtual);
    Node {
        id: id(&raw.id),
        kind: raw.kind,
        begin: begin.map(|(from, _)| from),
        end: end.map(|(_, to)| to),
        at: place(&raw.loc).map(|(from, _)| from),
        name: raw.name,
        mangled: raw.mangled_name,
        ty: raw.ty.written,
        plain,
        argument: raw.arg_type.or(raw.base_init).map(|ty| ty.plain.unwrap_or(ty.written)),
        opcode: raw.opcode,
        cast: raw.cast_kind,
        value: match raw.value {
            serde_json::Value::String(text) => text,
            serde_json::Value::Null => String::new(),
            other => other.to_string(),
        },
        storage: raw.storage_class,
        is_arrow: raw.is_arrow,
        is_postfix: raw.is_postfix,
        is_implicit: raw.is_implicit,
        is_constexpr: raw.constexpr || raw.is_constexpr,
        is_virtual,
        is_deleted: raw.explicitly_deleted,
        has_init: raw.has_init,
        has_variable: raw.has_var,
        category: raw.value_category,
        compute: raw.compute_result_type.plain.unwrap_or(raw.compute_result_type.written),
        refers,
        previous: id(&raw.previous_decl),
        parent: id(&raw.parent_decl_context_id),
        bases: raw.bases.into_iter().map(|base| base.ty.plain.unwrap_or(base.ty.written)).collect(),
        tag: raw.tag_used,
        owned: raw.owned_tag_decl.map_or(0, |owned| id(&owned.id)),
        children: raw.inner.into_iter().chain(raw.array_filler.into_iter().skip(1)).map(node).collect(),
    }
}

/// The range of a token.
fn place(raw: &RawLocation) -> Option<(usize, usize)> {
    if let Some(expansion) = &raw.expansion {
        return place(expansion);
    }
    raw.offset.map(|offset| (offset, offset + raw.length))
}

/// The number of an identity such as `0x55dff870b0d8`.
pub(super) fn id(text: &str) -> u64 {
    text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or(0)
}
