//! The rewriter: preprocessed MSL to C++ for clang, line by line.
//!
//! It is total, takes linear time, and maps every output byte to the input. It knows tokens and brackets, not types; semantic
//! checks are clang's.

mod address_space_types;
mod allow_list;
pub(crate) mod attributes;
pub(crate) mod buffer;
mod casts;
mod coherent;
pub(crate) mod dispatch;
mod float_pragmas;
pub(crate) mod function_constants;
pub(crate) mod function_head;
pub(crate) mod glue;
pub(crate) mod instantiations;
mod intrinsics;
pub(crate) mod kernels;
mod overloads;
mod pointer_casts;
mod qualifiers;
pub(crate) mod struct_attributes;
mod threadgroup;
mod vector_types;
mod visible_functions;

use std::collections::{HashMap, HashSet};

use self::allow_list::Pragma;
use self::attributes::{Attribute, Fault, Place};
use self::buffer::RewriteBuffer;
use self::casts::Casts;
use self::dispatch::Overload;
use self::float_pragmas::FloatPragmas;
use self::function_constants::FunctionConstantDecl;
use self::instantiations::DeclaredType;
use self::intrinsics::{Definition, LabeledFunctions};
use self::kernels::{Declaration, DeclarationKind, Kernel};
use self::overloads::OverloadTable;
use self::pointer_casts::PointerCast;
use self::qualifiers::{ADDRESS_SPACES, Brackets};
use self::struct_attributes::AttributedStruct;
use crate::lex::TokenKind;
use crate::lex::numeric_literal;
use crate::lex::token_buffer::TokenBuffer;
use crate::reflection::builtins;

/// Result of the rewriter.
pub(crate) struct Rewritten {
    /// The C++ text, without glue.
    pub text: RewriteBuffer,
    /// The kernels, in source order.
    pub kernels: Vec<Kernel>,
    /// The kernel templates, in source order; see [`Kernel::candidates`].
    pub templates: Vec<Kernel>,
    /// The function constants, in source order.
    pub constants: Vec<FunctionConstantDecl>,
    /// The structs whose members have attributes for positions or sizes.
    pub structs: Vec<AttributedStruct>,
    /// Names of the visible functions.
    pub functions: Vec<String>,
    /// Warnings: offset and message.
    pub warnings: Vec<(usize, String)>,
    /// Errors: offset and message.
    pub errors: Vec<(usize, String)>,
    /// Functions that call others depending on address spaces, by number.
    pub overloads: Vec<Overload>,
    /// Declarations that differ only by address spaces and cannot be distinguished.
    pub indistinct: Vec<Overload>,
}

const KERNEL: &str = "inline __attribute__((always_inline))";
/// Internal linkage: functions are emitted only if an entry uses them.
const BEFORE: &str = "#pragma clang attribute push(__attribute__((internal_linkage)), apply_to = function)\n";
const AFTER: &str = "\n#pragma clang attribute pop\n";

/// Treatment of address spaces.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AddressSpaces {
    /// Removed: memory is one address space. Functions that differ by address spaces only are chosen later; see [`dispatch`].
    Erased,
    /// Kept as attributes of clang's; see [`crate::diagnostics::address_spaces`].
    Annotated,
}

/// Rewrite preprocessed text.
pub(crate) fn rewrite(text: &str, address_spaces: AddressSpaces) -> Rewritten {
    let tokens = TokenBuffer::new(text);
    let mut walk = Rewriter {
        tokens: &tokens,
        brackets: Brackets::new(&tokens),
        refused: HashSet::new(),
        address_spaces,
        edits: Vec::new(),
        insertions: Vec::new(),
        errors: allow_list::disallowed(&tokens),
        scopes: Vec::new(),
        float_pragmas: FloatPragmas::default(),
        statement: 0,
        kernels: Vec::new(),
        constants: Vec::new(),
        structs: Vec::new(),
        initializers: HashMap::new(),
        parsed_statement: None,
        templates: Vec::new(),
        types: Vec::new(),
        declarations: OverloadTable::default(),
        labeled: LabeledFunctions::default(),
        casts: Casts::new(&tokens),
        namespace_ids: HashMap::new(),
        opened: 0,
        parentheses: 0,
        has_parameters: false,
        handled: HashSet::new(),
        functions: Vec::new(),
        overloads: Vec::new(),
        indistinct: Vec::new(),
        named: HashSet::new(),
        warnings: if address_spaces == AddressSpaces::Erased {
            allow_list::const_casts(&tokens)
        } else {
            Vec::new()
        },
    };
    walk.run();
    if address_spaces == AddressSpaces::Erased {
        walk.errors.extend(address_space_types::errors(&tokens));
    }
    walk.take_types();
    walk.dispatch_overloads();
    walk.edits.append(&mut walk.insertions);
    // An insertion precedes what replaces the text behind it.
    walk.edits.sort_by_key(|(start, end, _)| (*start, *end));
    let mut output = RewriteBuffer::default();
    output.replace(BEFORE, 0);
    let mut at = 0;
    for (start, end, replacement) in &walk.edits {
        // In the name of an overload, which is replaced as a whole.
        if *start < at {
            continue;
        }
        output.copy(&text[at..*start], at);
        output.replace(replacement, *start);
        at = *end;
    }
    output.copy(&text[at..], at);
    output.replace(AFTER, text.len());
    output.begin_glue();
    Rewritten {
        text: output,
        kernels: walk.kernels,
        templates: walk.templates,
        constants: walk.constants,
        structs: walk.structs,
        functions: walk.functions,
        warnings: walk.warnings,
        errors: walk.errors,
        overloads: walk.overloads,
        indistinct: walk.indistinct,
    }
}

/// Longest declaration of a labeled function, in tokens; bounds the search.
const MAX_LABELED: usize = 256;

enum Scope {
    /// A namespace's ID and names. A reopened namespace has the same ID.
    Namespace(usize, Vec<String>),
    /// `extern "C" {`
    Linkage,
    /// A class's ID; its name, if it can be named from outside.
    Class(usize, Option<String>),
    /// A function body or initializer; whether it is a kernel's.
    Body { kernel: bool },
}

struct Rewriter<'a> {
    tokens: &'a TokenBuffer<'a>,
    brackets: Brackets,
    /// Keywords that are used as names; each is reported once.
    refused: HashSet<&'a str>,
    address_spaces: AddressSpaces,
    /// Replacements by byte range, ascending and disjoint.
    edits: Vec<(usize, usize, String)>,
    /// Insertions, in any order.
    insertions: Vec<(usize, usize, String)>,
    errors: Vec<(usize, String)>,
    scopes: Vec<Scope>,
    float_pragmas: FloatPragmas,
    /// First token of the current statement.
    statement: usize,
    kernels: Vec<Kernel>,
    constants: Vec<FunctionConstantDecl>,
    structs: Vec<AttributedStruct>,
    /// Replacements of members' names, by token.
    initializers: HashMap<usize, String>,
    /// The statement whose kernel has been parsed; each is parsed once.
    parsed_statement: Option<usize>,
    templates: Vec<Kernel>,
    /// The types of kernels and templates, to be taken from the rewritten text.
    types: Vec<DeclaredType>,
    declarations: OverloadTable,
    labeled: LabeledFunctions,
    casts: Casts<'a>,
    /// IDs of namespaces.
    namespace_ids: HashMap<Vec<String>, usize>,
    /// Number of braces opened so far.
    opened: usize,
    /// Number of parentheses that are open in the statement.
    parentheses: usize,
    /// Whether the statement has had any.
    has_parameters: bool,
    /// Offsets of attributes whose values members get.
    handled: HashSet<usize>,
    functions: Vec<String>,
    overloads: Vec<Overload>,
    indistinct: Vec<Overload>,
    /// Offsets at which parameters have been given names.
    named: HashSet<usize>,
    warnings: Vec<(usize, String)>,
}

impl Rewriter<'_> {
    fn run(&mut self) {
        let mut i = 0;
        while i < self.tokens.len() {
            if i == self.statement
                && let Some(behind) = self.repeated(i)
            {
                i = behind;
                continue;
            }
            i = match self.tokens.kind(i) {
                Some(TokenKind::Directive) => self.directive(i),
                Some(TokenKind::NumericLiteral) => {
                    if let Some(new) = numeric_literal::translate(self.tokens.spelling(i)) {
                        self.edit(i, i + 1, new);
                    }
                    i + 1
                }
                Some(TokenKind::Identifier) => self.identifier(i),
                Some(TokenKind::Punctuator) => self.punctuator(i),
                _ => i + 1,
            };
        }
    }

    /// Replace the tokens `from..to`, preserving line breaks.
    fn edit(&mut self, from: usize, to: usize, mut new: String) {
        let (start, end) =
            (self.tokens.start(from), self.tokens.start(from) + self.tokens.source_text(from, to).len());
        let lines = self.tokens.text[start..end].matches('\n').count();
        new.extend(std::iter::repeat_n('\n', lines));
        self.edits.push((start, end, new));
    }

    fn error(&mut self, i: usize, message: &str) {
        self.errors.push((self.tokens.start(i), message.to_owned()));
    }

    fn in_body(&self) -> bool {
        self.scopes.iter().any(|s| matches!(s, Scope::Body { .. } | Scope::Class(..)))
    }

    fn directive(&mut self, i: usize) -> usize {
        let text = self.tokens.spelling(i);
        match self.float_pragmas.replace(text, self.scopes.len()) {
            Some(Ok(new)) => self.edit(i, i + 1, new),
            Some(Err(message)) => self.error(i, &message),
            None => {}
        }
        if allow_list::pragma(text) == Pragma::Ignore {
            self.edit(i, i + 1, String::new());
            if self.address_spaces == AddressSpaces::Erased {
                let words =
                    text.trim_start_matches('#').trim_start().trim_start_matches("pragma").trim_start();
                let word = words.split(|c: char| c.is_whitespace() || c == '(').next().unwrap_or_default();
                self.warnings
                    .push((self.tokens.start(i), format!("unknown pragma `{word}`, which is ignored")));
            }
        }
        // clang 19 fails on a count that is an expression; without a count it unrolls what it can.
        let counted = text.contains("unroll") && text.matches('(').count() > 1;
        if counted && text.trim_start_matches('#').trim_start().starts_with("pragma") {
            self.edit(i, i + 1, "#pragma unroll".to_owned());
        }
        if self.statement == i {
            self.statement = i + 1;
        }
        i + 1
    }

    fn punctuator(&mut self, i: usize) -> usize {
        if let Some(behind) = self.tokens.after_attribute_list(i) {
            return self.attributes(i, behind);
        }
        if matches!(self.tokens.spelling(i), "{" | "}" | ";") {
            self.parentheses = 0;
            self.has_parameters = false;
        }
        match self.tokens.spelling(i) {
            "{" => {
                let scope = self.scope(i);
                self.opened += 1;
                self.scopes.push(scope);
                self.members(i);
                self.statement = i + 1;
            }
            "}" => {
                self.scopes.pop();
                self.float_pragmas.close(self.scopes.len());
                self.statement = i + 1;
            }
            ":" if i == self.statement + 1 && is_access(self.tokens.spelling(self.statement)) => {
                self.statement = i + 1
            }
            ";" => self.statement = i + 1,
            "(" => {
                if let Some(new) = self.casts.c_style(self.tokens, i) {
                    self.edit(i, i + 3, new);
                    return i + 3;
                }
                self.pointer_cast(i);
                self.parentheses += 1;
                self.has_parameters = true;
            }
            ")" => self.parentheses = self.parentheses.saturating_sub(1),
            _ => {}
        }
        i + 1
    }

    /// The scope that the brace at `i` opens.
    fn scope(&mut self, i: usize) -> Scope {
        let mut head = self.statement;
        while matches!(self.tokens.spelling(head), "inline" | "constexpr" | "typedef") {
            head += 1;
        }
        if self.tokens.spelling(head) == "namespace" {
            let names = (head + 1..i)
                .filter(|&t| self.tokens.is_identifier(t))
                .map(|t| self.tokens.spelling(t).to_owned());
            return self.namespace(names.collect());
        }
        while self.tokens.spelling(head) == "template" {
            head = self.tokens.after_template_list(head + 1).unwrap_or(head + 1);
        }
        if matches!(self.tokens.spelling(head), "struct" | "class" | "union")
            && !(head..i).any(|t| self.tokens.spelling(t) == "(" && self.tokens.spelling(t - 1) != "alignas")
        {
            return Scope::Class(self.opened + 1, self.class_name(head, i));
        }
        if self.tokens.spelling(head) == "extern"
            && self.tokens.kind(head + 1) == Some(TokenKind::StringLiteral)
            && i == head + 2
        {
            return Scope::Linkage;
        }
        let inner = matches!(self.scopes.last(), Some(Scope::Body { kernel: true }));
        Scope::Body { kernel: inner || self.parsed_statement == Some(self.statement) }
    }

    /// The name of the class whose keyword is at `head` and whose brace is at `open`; `None` for a template.
    fn class_name(&self, head: usize, open: usize) -> Option<String> {
        let typedef = self.tokens.spelling(self.statement) == "typedef";
        // Members of an unnamed class cannot be named.
        let outside = !matches!(self.scopes.last(), Some(Scope::Body { .. } | Scope::Class(_, None)));
        let name = match (head + 1..open)
            .find(|&t| self.tokens.is_identifier(t) && self.tokens.spelling(t + 1) != "(")
        {
            Some(name) => name,
            None if typedef => self.tokens.after_group(open)?,
            None => return None,
        };
        let plain = self.tokens.is_identifier(name) && self.tokens.spelling(name + 1) != "<";
        let template = self.tokens.spelling(self.statement) == "template";
        (plain && outside && !template).then(|| self.tokens.spelling(name).to_owned())
    }

    /// Handle the members with attributes of the class that the brace at `i` opens.
    fn members(&mut self, i: usize) {
        let Some(Scope::Class(_, Some(_))) = self.scopes.last() else { return };
        let Some(members) = struct_attributes::members(self.tokens, i) else { return };
        let names = |s: &Scope| match s {
            Scope::Namespace(_, names) => names.clone(),
            Scope::Class(_, name) => name.iter().cloned().collect(),
            _ => Vec::new(),
        };
        let path = self.scopes.iter().flat_map(names).collect::<Vec<_>>().join("::");
        for member in &members {
            if let Some(attribute) = &member.attribute {
                self.handled.insert(attribute.offset);
                self.initializers.insert(member.token, member.initialized(attribute));
            }
        }
        self.structs.push(AttributedStruct { path, members });
        let behind = self.tokens.start(i) + 1;
        self.edits.push((
            behind,
            behind,
            format!(" enum {{ elinvar_attributed = {} }};", self.structs.len()),
        ));
    }

    fn namespace(&mut self, names: Vec<String>) -> Scope {
        let path = [self.namespaces(), names.clone()].concat();
        let number = *self.namespace_ids.entry(path).or_insert(self.opened + 1);
        Scope::Namespace(number, names)
    }

    fn attributes(&mut self, i: usize, behind: usize) -> usize {
        let list = attributes::parse(self.tokens, i, behind);
        if let [attribute] = &list[..]
            && attribute.name == "function_constant"
            && self.begins_constant(i)
        {
            self.constant(i, behind, attribute);
            return behind;
        } else if let [attribute] = &list[..]
            && !self.in_body()
            && self.attribute_place(behind) == Place::Variable
            && self.program_value(i, behind, attribute)
        {
            return behind;
        } else if list.iter().any(|a| a.name == "kernel") && !self.in_body() {
            self.kernel(i, behind);
        } else if !attributes::standard(&list) {
            let function = visible_functions::name(&list, self.tokens, behind).filter(|_| !self.in_body());
            self.edit(i, behind, function.as_ref().map_or(" ", |_| visible_functions::KEPT).to_owned());
            self.functions.extend(function.filter(|name| !self.functions.contains(name)));
        }
        self.check_attributes(&list, self.attribute_place(behind));
        behind
    }

    fn check_attributes(&mut self, list: &[Attribute], place: Place) {
        for attribute in list.iter().filter(|a| !a.name.is_empty()) {
            let handled = self.handled.contains(&attribute.offset);
            match attributes::check(attribute, place).filter(|_| !handled) {
                Some(Fault::Error(message)) => self.errors.push((attribute.offset, message)),
                Some(Fault::Warning(message)) if self.address_spaces == AddressSpaces::Erased => {
                    self.warnings.push((attribute.offset, message));
                }
                _ => {}
            }
        }
    }

    /// What the attribute list that ends before token `behind` belongs to.
    fn attribute_place(&self, behind: usize) -> Place {
        let function = self.has_parameters || matches!(self.scopes.last(), Some(Scope::Body { .. }));
        if self.parentheses > 0 {
            Place::Parameter
        } else if function {
            Place::Function
        } else if matches!(self.scopes.last(), Some(Scope::Class(..))) {
            Place::Member
        } else if matches!(self.tokens.spelling(behind), ";" | "," | "=") {
            Place::Variable
        } else {
            Place::Function
        }
    }

    /// Rewrite a variable at program scope that has the value of an attribute, whose list is `i..behind`.
    fn program_value(&mut self, i: usize, behind: usize, attribute: &Attribute) -> bool {
        let name = i.wrapping_sub(1);
        let of_type = |t: &usize| {
            !matches!(self.tokens.spelling(*t), "const" | "constexpr" | "static" | "constant" | "thread")
        };
        // Bounds the search; the type is a vector.
        let words: Vec<&str> = (self.statement..name.min(self.statement + 16))
            .filter(of_type)
            .map(|t| self.tokens.spelling(t))
            .collect();
        let plain =
            self.tokens.is_identifier(name) && !words.is_empty() && self.tokens.spelling(behind) == ";";
        if !plain || builtins::dimensions(&attribute.name).is_none() {
            return false;
        }
        let statement = self.tokens.start(self.statement);
        while self.edits.last().is_some_and(|(start, ..)| *start >= statement) {
            self.edits.pop();
        }
        let replacement = format!(
            "static constexpr elinvar::program_value<{}, elinvar::attribute::{}> {}{{}}",
            words.join(" "),
            attribute.name,
            self.tokens.spelling(name)
        );
        self.edit(self.statement, behind, replacement);
        true
    }

    /// Whether the statement up to token `i` declares a variable at program scope, rather than a function.
    fn begins_constant(&self, i: usize) -> bool {
        // Bounds the search; no declaration has more specifiers.
        let words = || self.statement..i.min(self.statement + 32);
        !self.in_body()
            && words().any(|t| self.tokens.spelling(t) == "constant")
            && !words().any(|t| matches!(self.tokens.spelling(t), "(" | "=" | "{"))
    }

    /// Rewrite a function constant, whose attribute list is `i..behind`.
    fn constant(&mut self, i: usize, behind: usize, attribute: &Attribute) {
        let name = i.wrapping_sub(1);
        if !self.tokens.is_identifier(name)
            || self.tokens.spelling(behind) != ";"
            || attribute.argument.is_none()
        {
            let message = "a function constant is declared as `constant T name [[function_constant(n)]];`";
            self.errors.push((attribute.offset, message.to_owned()));
            return;
        }
        // `static` and `constexpr` conflict with `extern`.
        for t in self.statement..name {
            if matches!(self.tokens.spelling(t), "static" | "constexpr" | "inline") {
                let start = self.tokens.start(t);
                let at = self.edits.partition_point(|(before, ..)| *before < start);
                self.edits.insert(at, (start, start + self.tokens.spelling(t).len(), String::new()));
            }
        }
        let path = [&self.namespaces()[..], &[self.tokens.spelling(name).to_owned()]].concat().join("::");
        let replacement = function_constants::declaration(self.constants.len(), self.tokens.spelling(name));
        self.edit(name, behind, replacement);
        let offset = self.tokens.start(name);
        self.constants.push(FunctionConstantDecl { path, attribute: attribute.clone(), offset });
    }

    /// Rewrite `is_function_constant_defined(a::b)` to a constant next to `a::b`. Returns the token after it.
    fn is_defined(&mut self, i: usize) -> Option<usize> {
        let behind = self.tokens.after_group(i + 1).filter(|_| self.tokens.spelling(i + 1) == "(")?;
        let name = behind - 2;
        // Only a name: `a + b` is not one, and neither is `a::b::`.
        let is_part = |at: usize| match (name - at) % 2 {
            0 => self.tokens.is_identifier(at),
            _ => self.tokens.spelling(at) == "::",
        };
        if name < i + 2 || !(i + 2..=name).all(is_part) {
            return None;
        }
        // Without the white space between, as ends of line stay where they are.
        let path: String = (i + 2..name).map(|at| self.tokens.spelling(at)).collect();
        self.edit(i, behind, format!("{path}{}{}", function_constants::DEFINED, self.tokens.spelling(name)));
        Some(behind)
    }

    fn namespaces(&self) -> Vec<String> {
        let names = |s: &Scope| match s {
            Scope::Namespace(_, names) => names.clone(),
            _ => Vec::new(),
        };
        self.scopes.iter().flat_map(names).collect()
    }

    fn identifier(&mut self, i: usize) -> usize {
        let is_space = ADDRESS_SPACES.contains(&self.tokens.spelling(i));
        let result_type = is_space && self.tokens.is_identifier(i + 1);
        match self.tokens.spelling(i.wrapping_sub(1)) {
            "." | "::" => return i + 1,
            "->" if !result_type => return i + 1,
            _ => {}
        }
        if is_space && self.names(i) {
            return i + 1;
        }
        if let Some(new) = self.initializers.remove(&i) {
            self.edit(i, i + 1, new);
            return i + 1;
        }
        match self.tokens.spelling(i) {
            "device" | "thread" | "threadgroup_imageblock" | "object_data" | "ray_data" => {
                self.edit(i, i + 1, self.space_attribute(i).to_owned());
            }
            "constant" => {
                // After a constructor's parameters it qualifies the constructed object; `const` is an error there.
                let parameters = self.tokens.spelling(i.wrapping_sub(1)) == ")";
                let of_constructor = parameters && overloads::is_constructor(self.tokens, self.statement, i);
                let new = if of_constructor { "" } else { "const" };
                self.edit(i, i + 1, format!("{new} {}", self.space_attribute(i)).trim().to_owned());
            }
            "coherent" => return self.coherent(i),
            "threadgroup" => return self.threadgroup(i),
            function_constants::IS_DEFINED => return self.is_defined(i).unwrap_or(i + 1),
            "kernel" if !self.in_body() && self.is_kernel_keyword(i) => self.kernel(i, i + 1),
            "asm" | "__asm" | "__asm__" => return self.labeled_function(i).unwrap_or(i + 1),
            "template" if self.tokens.spelling(i + 1) == "<" => {
                for ty in vector_types::lengths(self.tokens, i) {
                    let two = self.tokens.spelling(ty + 1) == "int";
                    self.initializers.insert(ty, if two { String::new() } else { "int".to_owned() });
                }
            }
            "typedef" => {
                if let Some((new, behind)) = vector_types::typedef(self.tokens, i) {
                    self.edit(i, behind, new);
                    return behind;
                }
            }
            "vertex" | "fragment" if !self.in_body() && self.is_kernel_keyword(i) => {
                // Anything but a function is left to clang, which names the word.
                if kernels::parse(self.tokens, self.statement, &[]).is_some() {
                    self.edit(i, i + 1, String::new());
                }
            }
            "static_cast" if self.casts.any() => self.cast(i),
            "double" => self.error(i, "MSL has no type `double`; use `float`"),
            _ => {
                if let Some((new, behind)) = vector_types::of_type(self.tokens, i) {
                    self.edit(i, behind, new);
                    return behind;
                }
                if let Some(new) = self.casts.functional(self.tokens, i) {
                    self.edit(i, i + 1, new);
                }
            }
        }
        i + 1
    }

    /// Whether the keyword for an address space at `i` is used as a name, which is an error.
    fn names(&mut self, i: usize) -> bool {
        let word = self.tokens.spelling(i);
        let in_body = matches!(self.scopes.last(), Some(Scope::Body { .. }));
        let qualifies = self.brackets.is_qualifier(self.tokens, i, in_body);
        if !qualifies && self.refused.insert(word) {
            let message = format!("`{word}` is a keyword of MSL, for an address space; it cannot be a name");
            self.error(i, &message);
        }
        !qualifies
    }

    /// Define the function whose label is at token `i`; see [`intrinsics`]. Returns the token after its declaration.
    fn labeled_function(&mut self, i: usize) -> Option<usize> {
        if self.in_body() || i > self.statement + MAX_LABELED {
            return None;
        }
        let Definition { names, mut body, behind } = self.labeled.define(self.tokens, self.statement, i)?;
        if self.address_spaces == AddressSpaces::Annotated {
            body.clear();
        }
        for (at, name) in names {
            let last = at - 1;
            let end = self.tokens.start(last) + self.tokens.spelling(last).len();
            let place = self.edits.partition_point(|(before, ..)| *before < end);
            self.edits.insert(place, (end, end, name));
        }
        // A definition has no `;`.
        let rest = if body.is_empty() { behind } else { behind + 1 };
        self.edit(i, rest, body);
        self.statement = behind + 1;
        Some(behind + 1)
    }

    /// Whether `kernel` at token `i` begins a function, and is not the name of a parameter or variable.
    fn is_kernel_keyword(&self, i: usize) -> bool {
        let next = self.tokens.is_identifier(i + 1) || self.tokens.after_attribute_list(i + 1).is_some();
        next && self.parentheses == 0
    }

    /// The replacement of an address space qualifier at `i`: nothing on a member function, else its attribute if annotated.
    fn space_attribute(&self, i: usize) -> &'static str {
        if self.address_spaces == AddressSpaces::Erased {
            return "";
        }
        let qualifies = |t: &usize| {
            matches!(self.tokens.spelling(*t), "const" | "volatile" | "noexcept") || self.is_address_space(*t)
        };
        // Bounds the search; no declaration has more qualifiers.
        let behind = (i + 1..i + 8).find(|t| !qualifies(t)).unwrap_or(i + 8);
        if matches!(self.tokens.spelling(behind), "{" | ";" | "=" | "->" | ":" | "") {
            return "";
        }
        match self.tokens.spelling(i) {
            "device" => "ELINVAR_device",
            "constant" => "ELINVAR_constant",
            "threadgroup" => "ELINVAR_threadgroup",
            _ => "",
        }
    }

    fn is_address_space(&self, i: usize) -> bool {
        overloads::is_address_space(self.tokens.spelling(i))
    }

    /// Rewrite a `static_cast` to a value type; see [`casts`].
    fn cast(&mut self, i: usize) {
        let Some(behind) = self.tokens.after_template_list(i + 1) else { return };
        if !(i + 1..behind).any(|t| matches!(self.tokens.spelling(t), "*" | "&" | "&&")) {
            self.edit(i, i + 1, "elinvar::cast".to_owned());
        }
    }

    /// With address spaces, let the C-style cast at `i` to a pointer go through a class that pointers of its address space convert to.
    fn pointer_cast(&mut self, i: usize) {
        if self.address_spaces == AddressSpaces::Erased {
            return;
        }
        match pointer_casts::pointer_cast(self.tokens, i) {
            Some(PointerCast { space: Some(space), close }) => {
                let end = self.tokens.start(close) + 1;
                self.insertions.push((end, end, format!("(elinvar_pointer_{space})")));
            }
            Some(PointerCast { space: None, .. }) => {
                let message = "a cast to a pointer without an address space, which is an error in Metal";
                self.warnings.push((self.tokens.start(i), message.to_owned()));
            }
            None => {}
        }
    }

    /// Handle a kernel, whose keyword or attribute list is `from..to`.
    fn kernel(&mut self, from: usize, to: usize) {
        let namespaces = self.namespaces();
        let first = self.parsed_statement.replace(self.statement) != Some(self.statement);
        let declaration = first.then(|| kernels::parse(self.tokens, self.statement, &namespaces)).flatten();
        let Some(declaration) = declaration else {
            // Anything but a function is left to clang, which names the word.
            if !first {
                self.edit(from, to, " ".to_owned());
            } else if !self.tokens.is_identifier(from) {
                self.error(from, "`[[kernel]]` belongs to no function");
            }
            return;
        };
        let kernel = declaration.kernel;
        let new = match declaration.kind {
            DeclarationKind::Instantiation => " ".to_owned(),
            DeclarationKind::Template => format!("{KERNEL} {}({})", glue::TEMPLATE, self.templates.len()),
            _ => KERNEL.to_owned(),
        };
        self.edit(from, to, new);
        let Declaration { kind, result, parameters, .. } = declaration;
        let (template, instantiation) =
            (kind == DeclarationKind::Template, kind == DeclarationKind::Instantiation);
        let list = if template { &mut self.templates } else { &mut self.kernels };
        if kind == DeclarationKind::Prototype {
            return;
        }
        self.types.push(DeclaredType { kind, index: list.len(), result, parameters });
        list.push(kernel);
        if instantiation
            && let Some(at) = (self.statement..from).find(|&at| self.tokens.spelling(at) == "template")
        {
            let start = self.tokens.start(at);
            let place = self.edits.partition_point(|(before, ..)| *before < start);
            self.edits.insert(place, (start, start + "template".len(), glue::INSTANTIATE.to_owned()));
        }
    }
}

fn is_access(word: &str) -> bool {
    matches!(word, "public" | "private" | "protected")
}

#[cfg(test)]
mod tests;
