//! Declarations: variables, typedefs, structs and enums.

use crate::opencl::ast::Node;
use crate::opencl::text::{closing, skip_blank, tokens};
use crate::opencl::types::{self, Shape, Space, Type};

use super::Renderer;

impl Renderer<'_> {
    /// A declaration statement, with its semicolon.
    pub fn declaration_statement(&mut self, node: &Node, in_for: bool) -> String {
        let (Some(begin), Some(end)) = (node.begin, node.end) else { return String::new() };
        let variables: Vec<&Node> = node.children.iter().filter(|child| child.kind == "VarDecl").collect();
        if variables.is_empty() {
            return self.splice(node);
        }
        let records: Vec<&Node> = node.children.iter().filter(|child| child.kind == "RecordDecl").collect();
        let text = self.declarators(&records, &variables, in_for);
        self.fit(begin, end, text + ";")
    }

    /// Variables, fields or typedefs of one group, without the last semicolon.
    pub fn declarators(&mut self, records: &[&Node], group: &[&Node], in_one: bool) -> String {
        let (mut out, mut after) = (String::new(), None);
        let (mut base, mut is_record) = (String::new(), false);
        for node in group {
            let one = self.declarator(records, node);
            match after {
                None => {
                    // A struct that is defined here is part of the specifiers.
                    let body = one.find('{').filter(|_| record_of(records, node).is_some());
                    let end = body.and_then(|open| closing(&one, open));
                    is_record = end.is_some();
                    base = end.map_or_else(|| base_of(&one), |end| one[..end].to_owned());
                    out.push_str(&one);
                }
                Some(at) => {
                    let gap = self.blanks(at, node.at.unwrap_or(at));
                    let gap = if gap.trim().is_empty() && !gap.contains('\n') { " ".to_owned() } else { gap };
                    let declared =
                        one.strip_prefix(&base).filter(|_| in_one || is_record || is_plain(&base, &one));
                    match declared {
                        Some(rest) => out.push_str(&format!(",{gap}{}", rest.trim_start())),
                        None if in_one => {
                            out = self.refuse(
                                node,
                                "declarations of different types in one `for` are not supported",
                            );
                        }
                        None => out.push_str(&format!(";{gap}{one}")),
                    }
                }
            }
            after = node.end;
        }
        out
    }

    /// One variable, field or typedef, with its initializer.
    fn declarator(&mut self, records: &[&Node], node: &Node) -> String {
        let name = self.program.names.of(&node.name);
        let inline = record_of(records, node);
        let mut words = String::new();
        if node.kind == "TypedefDecl" {
            words.push_str("typedef ");
        }
        let declared = match (inline, self.parse_type(node)) {
            (Some(record), parsed) => {
                // The first of a group defines the struct.
                let record_text = self.node(record);
                let parsed = parsed.or_else(|| types::parse(&without_place(&node.ty)));
                if let (Some(found), "VarDecl") = (&parsed, node.kind.as_str()) {
                    words.push_str(self.storage(node, found));
                }
                let suffix = match parsed.as_ref() {
                    Some(found) => {
                        let placeholder = found.declare(&name, &|_| "\u{1}".into());
                        placeholder.split_once('\u{1}').map_or(String::new(), |(_, rest)| rest.to_owned())
                    }
                    None => format!(" {name}"),
                };
                format!("{record_text}{suffix}")
            }
            (None, Some(found)) => {
                self.expect_type(node);
                if node.kind == "VarDecl" {
                    words.push_str(self.storage(node, &found));
                }
                self.declare(&found, &name)
            }
            (None, None) => {
                return self.refuse(node, format!("the type `{}` has no counterpart in MSL", node.ty));
            }
        };
        let attributes = self.alignment(node);
        let value = node.children.iter().find(|child| is_expression(child));
        let value = match value {
            Some(value) => format!(" = {}", self.initializer(value)),
            None => String::new(),
        };
        format!("{attributes}{words}{declared}{value}")
    }

    /// Refuses types that MSL does not have.
    pub fn expect_type(&mut self, node: &Node) {
        let plain = node.plain.as_str();
        for (part, why) in [
            ("image", "images are not supported: compute kernels take buffers"),
            ("sampler_t", "samplers are not supported"),
            ("double", "`double` does not exist in Metal"),
            ("event_t", ""),
        ] {
            if !why.is_empty()
                && tokens(plain, 0).any(|(_, token)| token.starts_with(part) && !token.contains("__attr"))
            {
                self.refuse(node, format!("{why} (`{}`)", node.ty));
            }
        }
    }

    /// The address space and storage class of a variable.
    fn storage(&mut self, node: &Node, found: &Type) -> &'static str {
        match found.qualifiers().space {
            Some(Space::Local) => "threadgroup ",
            Some(Space::Constant) if node.storage == "static" => "constant ",
            Some(Space::Constant) => "constant ",
            Some(Space::Global) => {
                self.refuse(node, "variables in `__global` memory at program scope are not supported");
                ""
            }
            _ if node.storage == "extern" => {
                self.refuse(node, "`extern` variables are not supported");
                ""
            }
            _ => "",
        }
    }

    /// `alignas(N) ` of an `aligned` attribute.
    fn alignment(&self, node: &Node) -> String {
        let aligned = node.children.iter().find(|child| child.kind == "AlignedAttr");
        aligned.map_or(String::new(), |attribute| {
            let text = self.source(attribute);
            let number = text.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or("16");
            format!("alignas({number}) ")
        })
    }

    /// A struct or union: its fields are declared anew, the rest is copied.
    pub fn record(&mut self, node: &Node) -> String {
        let (Some(begin), Some(end)) = (node.begin, node.end) else { return String::new() };
        let records: Vec<&Node> = node.children.iter().filter(|child| child.kind == "RecordDecl").collect();
        let anonymous = |record: &Node| {
            !node.children.iter().any(|field| {
                field.kind == "FieldDecl"
                    && !field.name.is_empty()
                    && field.begin <= record.begin
                    && field.at >= record.end
            })
        };
        // What stands in the body: groups of fields, and structs that are declared alone.
        let mut items: Vec<(usize, usize, Vec<&Node>)> = Vec::new();
        let fields: Vec<&Node> = node
            .children
            .iter()
            .filter(|child| child.kind == "FieldDecl" && !child.name.is_empty())
            .collect();
        for field in fields {
            let (Some(from), Some(to)) = (field.begin, field.end) else { continue };
            match items.last_mut() {
                Some((start, end, group)) if *start == from => {
                    group.push(field);
                    *end = to;
                }
                _ => items.push((from, to, vec![field])),
            }
        }
        for record in records.iter().filter(|record| anonymous(record)) {
            if let (Some(from), Some(to)) = (record.begin, record.end) {
                items.push((from, to, vec![record]));
            }
        }
        items.sort_by_key(|item| item.0);
        let (mut out, mut at) = (String::new(), begin);
        for (from, to, group) in items {
            if from < at {
                continue;
            }
            out.push_str(&self.rename_words(&self.text[at..from]));
            let text = if group[0].kind == "RecordDecl" {
                self.record(group[0])
            } else {
                self.declarators(&records, &group, false)
            };
            // Attributes behind the field's name have become `alignas`.
            let semicolon = tokens(self.text, to).find(|(_, token)| *token == ";" || *token == "}");
            let to = semicolon.filter(|(_, token)| *token == ";").map_or(to, |(place, _)| place).max(to);
            let text = if group[0].kind == "RecordDecl" { text } else { self.fit(from, to, text) };
            out.push_str(&text);
            at = if group[0].kind == "RecordDecl" { group[0].end.unwrap_or(to) } else { to };
        }
        out.push_str(&self.rename_words(self.text.get(at..end).unwrap_or("")));
        out
    }

    /// The value of an initializer. In braces conversions are explicit, because C++ does not allow narrowing.
    pub fn initializer(&mut self, node: &Node) -> String {
        if let Some(list) = unterminated(node) {
            return list;
        }
        if node.kind != "InitListExpr" {
            return self.node(node);
        }
        let shape = Shape::of(&node.plain);
        if shape.is_vector() {
            return self.vector_literal(node, shape);
        }
        let (Some(begin), Some(end)) = (node.begin, node.end) else { return String::new() };
        let placed: Vec<&Node> = node.children.iter().filter(|child| child.begin.is_some()).collect();
        let in_order = placed.windows(2).all(|pair| pair[0].end <= pair[1].begin);
        let has_designators = {
            let mut at = begin;
            placed.iter().any(|child| {
                let gap = self.text.get(at..child.begin.unwrap_or(at)).unwrap_or("");
                at = child.end.unwrap_or(at);
                tokens(gap, 0).any(|(_, token)| token == "=" || token == ".")
            })
        };
        if !has_designators && in_order {
            return self.splice_with(node, &placed, Self::element);
        }
        let values: Vec<String> = node
            .children
            .iter()
            .map(|child| if child.begin.is_some() { self.element(child) } else { "{}".to_owned() })
            .collect();
        self.fit(begin, end, format!("{{{}}}", values.join(", ")))
    }

    fn element(&mut self, node: &Node) -> String {
        if node.kind == "InitListExpr" {
            return self.initializer(node);
        }
        let shape = Shape::of(&node.plain);
        if matches!(shape, Shape::Scalar(_)) { self.exactly(node, shape) } else { self.node(node) }
    }

    /// An enum: names that MSL does not allow are replaced.
    pub fn enumeration(&mut self, node: &Node) -> String {
        let text = self.source(node);
        self.rename_words(text)
    }

    /// The end of a declaration with its semicolon.
    pub fn statement_end(&self, end: usize) -> usize {
        let at = skip_blank(self.text, end);
        if self.text[at..].starts_with(';') { at + 1 } else { end }
    }
}

/// A string that fills its array without the 0 at the end, which C++ does not allow, as a list.
fn unterminated(node: &Node) -> Option<String> {
    let (_, length) =
        node.plain.strip_suffix(']')?.rsplit_once('[').filter(|_| node.kind == "StringLiteral")?;
    let mut rest = node.value.strip_prefix('"')?.strip_suffix('"')?;
    let mut letters = Vec::new();
    while let Some(first) = rest.chars().next() {
        let behind = &rest[first.len_utf8()..];
        let digits =
            |digits: &str, radix| digits.len() - digits.trim_start_matches(|c: char| c.is_digit(radix)).len();
        let size = match (first, behind.chars().next()) {
            ('\\', Some('x')) => 2 + digits(&behind[1..], 16),
            ('\\', Some('0'..='7')) => 1 + digits(behind, 8).min(3),
            ('\\', Some(escaped)) => 1 + escaped.len_utf8(),
            _ => first.len_utf8(),
        };
        let letter = &rest[..size];
        letters.push(if letter == "'" { r"'\''".to_owned() } else { format!("'{letter}'") });
        rest = &rest[size..];
    }
    (length.parse() == Ok(letters.len())).then(|| format!("{{{}}}", letters.join(", ")))
}

/// The struct that a declaration defines.
fn record_of<'a>(records: &[&'a Node], node: &Node) -> Option<&'a Node> {
    let is_inside = |record: &&&Node| {
        record.begin >= node.begin && record.end <= node.at && record.begin.is_some() && record.end.is_some()
    };
    records.iter().find(is_inside).copied()
}

/// A type whose struct has no name, as in `struct (unnamed struct at FILE:1:2)[4]`, with a name.
fn without_place(ty: &str) -> String {
    match ty.split_once("(unnamed ").and_then(|(before, rest)| Some((before, rest.split_once(')')?.1))) {
        Some((before, after)) => format!("{before}unnamed{after}"),
        None => ty.to_owned(),
    }
}

/// Whether a child of a declaration is its value.
pub(super) fn is_expression(node: &Node) -> bool {
    let kind = node.kind.as_str();
    kind.ends_with("Expr") || kind.ends_with("Literal") || kind.ends_with("Operator")
}

/// The specifiers of a declaration: all but the declarator.
fn base_of(declared: &str) -> String {
    let head = declared.split(['=', '[', '(']).next().unwrap_or(declared);
    match head.find('*') {
        Some(star) => head[..star].to_owned(),
        None => head.trim_end().rsplit_once(' ').map_or(String::new(), |(base, _)| format!("{base} ")),
    }
}

/// Whether a declarator can follow others behind a comma without surprise: no pointer, or one.
fn is_plain(base: &str, one: &str) -> bool {
    !one.contains('*') && !base.is_empty()
}
