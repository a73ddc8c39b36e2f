//! Statements, with the comments between them.

use super::Renderer;
use crate::cuda::ast::{Node, is_expression};
use crate::cuda::program::Need;
use crate::cuda::spaces::key;
use crate::cuda::types::{Space, Ty};
use crate::opencl::text::tokens;

impl<'a> Renderer<'_, 'a> {
    pub(super) fn statements(&mut self, node: &'a Node) {
        for child in &node.children {
            self.statement(child);
        }
        // Comments before the closing brace.
        if let Some(end) = node.end {
            self.comments(end.saturating_sub(1));
        }
    }

    /// Writes the comments from the last statement up to an offset.
    pub(super) fn comments(&mut self, to: usize) {
        let from = self.last;
        if to <= from || self.program.is_header_at(to) {
            return;
        }
        let Some(gap) = self.program.text.text.get(from..to) else { return };
        if !gap.contains("/*") && !gap.contains("//") {
            return;
        }
        // What is left of the gap without its tokens.
        let mut rest = gap.as_bytes().to_vec();
        for (at, token) in tokens(gap, 0) {
            rest[at..at + token.len()].fill(b' ');
        }
        let rest = String::from_utf8_lossy(&rest).into_owned();
        let mut offset = from;
        for (number, line) in rest.split('\n').enumerate() {
            let comment = line.trim();
            if !comment.is_empty() {
                match self.rows.last_mut() {
                    Some(row) if number == 0 && comment.starts_with("//") => {
                        row.text.push_str(&format!(" {comment}"))
                    }
                    _ => self.row(Some(offset), comment),
                }
            }
            offset += line.len() + 1;
        }
    }

    fn statement(&mut self, node: &'a Node) {
        let begin = node.begin;
        if let Some(begin) = begin {
            self.comments(begin);
            self.last = self.last.max(begin);
        }
        self.statement_text(node);
        if let Some(end) = node.end {
            self.last = self.last.max(end);
        }
    }

    fn statement_text(&mut self, node: &'a Node) {
        let at = node.begin;
        match node.kind.as_str() {
            "CompoundStmt" => {
                self.row(at, "{");
                self.indent += 1;
                self.statements(node);
                self.indent -= 1;
                self.row(None, "}");
            }
            "DeclStmt" => self.declarations(node),
            "NullStmt" => {}
            "ReturnStmt" => {
                let instance = &self.program.instances[self.instance];
                let is_constructor = instance.node.kind == "CXXConstructorDecl";
                match node.first() {
                    Some(value) => {
                        let result = crate::cuda::program::result_of(instance.node, self.program.names);
                        let scalar = result.name().and_then(crate::cuda::types::Scalar::named);
                        let text = match scalar {
                            Some(scalar) if scalar.is_float() => self.exact(value, scalar),
                            _ => self.expr(value),
                        };
                        self.row(at, format!("return {text};"));
                    }
                    None if is_constructor => self.row(at, "return self;"),
                    None => self.row(at, "return;"),
                }
            }
            "IfStmt" => self.if_statement(node),
            "ForStmt" => self.for_statement(node),
            "WhileStmt" => {
                let [.., condition, body] = &node.children[..] else { return };
                if node.has_variable {
                    self.refuse(node, "a declaration in the condition of a loop is not supported");
                }
                let condition = self.condition(condition);
                self.block(at, &format!("while ({condition})"), body);
            }
            "DoStmt" => {
                let [body, condition] = &node.children[..] else { return };
                self.block(at, "do", body);
                let condition_text = self.condition(condition);
                if let Some(row) = self.rows.last_mut() {
                    row.text.push_str(&format!(" while ({condition_text});"));
                }
            }
            "SwitchStmt" => {
                let [.., value, body] = &node.children[..] else { return };
                let value = self.expr(value);
                self.block(at, &format!("switch ({value})"), body);
            }
            "CaseStmt" => {
                let (Some(value), Some(inner)) = (node.first(), node.children.last()) else { return };
                let text = match value.value.is_empty() {
                    true => self.expr(value),
                    false => value.value.clone(),
                };
                self.row(at, format!("case {text}:"));
                self.indent += 1;
                self.statement(inner);
                self.indent -= 1;
            }
            "DefaultStmt" => {
                self.row(at, "default:");
                self.indent += 1;
                if let Some(inner) = node.first() {
                    self.statement(inner);
                }
                self.indent -= 1;
            }
            "BreakStmt" => self.row(at, "break;"),
            "ContinueStmt" => self.row(at, "continue;"),
            "CXXForRangeStmt" => self.range_loop(node),
            "AttributedStmt" => {
                if node.has("LoopHintAttr") {
                    self.row(at, "#pragma unroll");
                }
                if let Some(inner) = node.children.last() {
                    self.statement_text(inner);
                }
            }
            "LabelStmt" | "GotoStmt" | "IndirectGotoStmt" => {
                self.refuse(node, "Metal has no `goto`");
            }
            "GCCAsmStmt" | "MSAsmStmt" => {
                self.refuse(node, "inline PTX has no counterpart in Metal");
            }
            "CXXTryStmt" => {
                self.refuse(node, "Metal has no exceptions");
            }
            kind if is_expression(kind) => {
                let mut value = node.bare();
                while value.kind == "CStyleCastExpr"
                    && value.cast == "ToVoid"
                    && let Some(inner) = value.first()
                {
                    value = inner.bare();
                }
                self.discarded = Some(key(value));
                let text = self.expr(node);
                if !text.is_empty() && text != "(void)0" {
                    self.row(at, format!("{text};"));
                }
            }
            "" => {}
            kind => {
                self.refuse(node, format!("`{kind}` has no translation"));
            }
        }
    }

    /// A statement in braces behind a head.
    fn block(&mut self, at: Option<usize>, head: &str, body: &'a Node) {
        self.row(at, format!("{head} {{"));
        if let Some(begin) = body.begin {
            self.last = self.last.max(begin);
        }
        self.indent += 1;
        match body.kind.as_str() {
            "CompoundStmt" => self.statements(body),
            _ => self.statement(body),
        }
        self.indent -= 1;
        self.row(None, "}");
    }

    fn if_statement(&mut self, node: &'a Node) {
        let mut parts = node.children.iter();
        let has_scope = node.has_init || node.has_variable;
        if has_scope {
            self.row(node.begin, "{");
            self.indent += 1;
        }
        if node.has_init
            && let Some(init) = parts.next()
        {
            self.statement(init);
        }
        if node.has_variable
            && let Some(variable) = parts.next()
        {
            self.statement(variable);
        }
        let (condition, one, other) = (parts.next(), parts.next(), parts.next());
        if let (Some(condition), Some(one)) = (condition, one) {
            match condition.value.as_str() {
                // The branch that is not taken is not instantiated.
                "true" | "1" | "-1" if node.is_constexpr => self.statement(one),
                "false" | "0" if node.is_constexpr => {
                    if let Some(other) = other {
                        self.statement(other);
                    }
                }
                _ => {
                    let text = self.condition(condition);
                    self.block(node.begin, &format!("if ({text})"), one);
                    if let Some(other) = other.filter(|other| !other.is_null()) {
                        self.otherwise(other);
                    }
                }
            }
        }
        if has_scope {
            self.indent -= 1;
            self.row(None, "}");
        }
    }

    /// `else`, on the line of the brace before it.
    fn otherwise(&mut self, node: &'a Node) {
        let first = self.rows.len();
        let is_chain = node.kind == "IfStmt" && !node.has_init && !node.has_variable && !node.is_constexpr;
        match is_chain {
            true => self.if_statement(node),
            false => self.block(node.begin, "else", node),
        }
        let head = self.rows.get(first).map_or(String::new(), |row| row.text.trim_start().to_owned());
        let is_expected = head.starts_with("if (") || head.starts_with("else");
        if first > 0 && is_expected && self.rows[first - 1].text.trim() == "}" {
            let text = if is_chain { format!(" else {head}") } else { format!(" {head}") };
            let row = self.rows.remove(first);
            self.rows[first - 1].text.push_str(&text);
            self.rows[first - 1].offset = row.offset;
        }
    }

    fn for_statement(&mut self, node: &'a Node) {
        let [init, _, condition, step, body] = &node.children[..] else { return };
        let mut head = String::new();
        let mut is_open = false;
        if init.kind == "DeclStmt" {
            let texts: Vec<(String, String)> = init
                .children
                .iter()
                .filter(|child| child.kind == "VarDecl")
                .map(|variable| self.variable_text(variable))
                .collect();
            let is_one = texts.windows(2).all(|pair| pair[0].0 == pair[1].0)
                && texts.iter().all(|(_, rest)| !rest.contains("&"));
            if is_one || texts.len() == 1 {
                let base = texts.first().map_or("", |(base, _)| base.as_str());
                let rest: Vec<&str> = texts.iter().map(|(_, rest)| rest.as_str()).collect();
                let gap = if base.is_empty() { "" } else { " " };
                head = format!("{base}{gap}{}", rest.join(", "));
            } else {
                self.row(node.begin, "{");
                self.indent += 1;
                is_open = true;
                for (base, rest) in texts {
                    self.row(init.begin, format!("{base} {rest};"));
                }
            }
        } else if !init.is_null() {
            head = self.expr(init);
        }
        let condition =
            if condition.is_null() { String::new() } else { format!(" {}", self.condition(condition)) };
        let step = if step.is_null() { String::new() } else { format!(" {}", self.expr(step)) };
        self.block(node.begin, &format!("for ({head};{condition};{step})"), body);
        if is_open {
            self.indent -= 1;
            self.row(None, "}");
        }
    }

    fn range_loop(&mut self, node: &'a Node) {
        let [init, range, begin, end, condition, step, variable, body] = &node.children[..] else { return };
        self.row(node.begin, "{");
        self.indent += 1;
        for part in [init, range, begin, end] {
            if !part.is_null() {
                self.declarations(part);
            }
        }
        let (condition, step) = (self.expr(condition), self.expr(step));
        self.row(node.begin, format!("for (; {condition}; {step}) {{"));
        self.indent += 1;
        self.declarations(variable);
        match body.kind.as_str() {
            "CompoundStmt" => self.statements(body),
            _ => self.statement(body),
        }
        self.indent -= 1;
        self.row(None, "}");
        self.indent -= 1;
        self.row(None, "}");
    }

    fn declarations(&mut self, node: &'a Node) {
        for child in &node.children {
            if child.kind != "VarDecl" {
                continue;
            }
            if child.has("CUDASharedAttr") {
                self.shared_variable(child);
                continue;
            }
            let is_const = child.is_constexpr || child.ty.starts_with("const ");
            if child.storage == "static" && is_const {
                continue;
            }
            if child.storage == "static" || child.storage == "extern" {
                self.refuse(
                    child,
                    format!(
                        "`{}`: a {} variable in a function has no counterpart in Metal",
                        child.name, child.storage
                    ),
                );
                continue;
            }
            // Constants of `double` are folded where they are used.
            if self.scalar(child) == Some(crate::cuda::types::Scalar::Double)
                && child.initializer().is_some_and(|value| self.constant(value).is_some())
                && is_const
            {
                continue;
            }
            let (base, rest) = self.variable_text(child);
            let gap = if base.is_empty() { "" } else { " " };
            self.row(node.begin, format!("{base}{gap}{rest};"));
        }
    }

    /// Static shared memory is declared at the beginning of the kernel; that of the launch's size is a parameter.
    fn shared_variable(&mut self, node: &'a Node) {
        if node.storage != "extern" {
            return;
        }
        let ty = self.ty(node);
        let of = match ty {
            Ty::Array(of, _) => *of,
            other => other,
        };
        let at = node.begin.unwrap_or(0);
        let name = self.program.names.local(&node.name);
        let declared =
            self.declare(&Ty::Pointer(Box::new(of.clone())), &[Space::Threadgroup], &name, None, at);
        let pointer = self.declare(&Ty::Pointer(Box::new(of)), &[Space::Threadgroup], "", None, at);
        let memory = self.need_name(Need::Dynamic);
        self.variables.insert(node.id, name);
        self.row(node.begin, format!("{declared} = ({pointer}){memory};"));
    }

    /// A variable: its specifiers, and its declarator with the value.
    pub(super) fn variable_text(&mut self, node: &'a Node) -> (String, String) {
        let ty = self.ty(node);
        let at = node.begin.or(node.at).unwrap_or(0);
        let slots =
            self.program.instances[self.instance].spaces.variables.get(&node.id).cloned().unwrap_or_default();
        let levels: Vec<Space> =
            slots.iter().map(|slot| self.program.instances[self.instance].spaces.of(*slot)).collect();
        let name = match node.name.is_empty() {
            true => format!("unnamed_{at}"),
            false => self.program.names.local(&node.name),
        };
        let name = self.variables.get(&node.id).cloned().unwrap_or(name);
        let declared = self.declare(&ty, &levels, &name, None, at);
        let value = match node.initializer() {
            Some(value) => self.initial_value(value, &ty),
            None => String::new(),
        };
        // The specifiers end where the declarator begins.
        let cut = match declared.find(['*', '&']).filter(|_| ty.is_pointer() || ty.is_reference()) {
            Some(star) => star,
            None => declared.find(&format!(" {name}")).map_or(0, |at| at + 1),
        };
        let (base, rest) = declared.split_at(cut);
        let base = base.trim_end();
        if rest.starts_with(['*', '&']) {
            return (String::new(), format!("{base}{rest}{value}"));
        }
        (base.to_owned(), format!("{rest}{value}"))
    }

    fn initial_value(&mut self, value: &'a Node, ty: &Ty) -> String {
        let bare = value;
        if bare.kind == "CXXConstructExpr" && bare.children.is_empty() {
            let has_call = self.program.constructor(bare).is_some();
            if !has_call && ty.name().is_none_or(|name| name != "dim3") {
                return String::new();
            }
        }
        let scalar =
            ty.referred().name().and_then(crate::cuda::types::Scalar::named).filter(|_| !ty.is_reference());
        let text = match scalar {
            // `bfloat` and `half` are made explicitly.
            Some(scalar @ (crate::cuda::types::Scalar::Half | crate::cuda::types::Scalar::BFloat)) => {
                self.exact(value, scalar)
            }
            _ => self.expr(value),
        };
        format!(" = {text}")
    }
}
