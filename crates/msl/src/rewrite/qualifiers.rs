//! Where a keyword for an address space qualifies a type or a member function, and where it is taken for a name.
//!
//! The rewriter erases these words, so a use as a name (`a ? thread : b`) would change an expression. The tokens around the word
//! decide: it qualifies where `const` may stand.

use crate::lex::TokenKind;
use crate::lex::token_buffer::TokenBuffer;

/// The keywords for address spaces.
pub(crate) const ADDRESS_SPACES: [&str; 7] =
    ["device", "constant", "thread", "threadgroup", "threadgroup_imageblock", "object_data", "ray_data"];

/// Words that are no part of a type.
const NO_TYPE: [&str; 26] = [
    "return", "case", "goto", "throw", "delete", "new", "sizeof", "alignof", "else", "do", "and", "or",
    "not", "xor", "bitand", "bitor", "compl", "and_eq", "or_eq", "xor_eq", "not_eq", "this", "true", "false",
    "nullptr", "default",
];

/// What a name follows.
const BEFORE_A_NAME: [&str; 9] =
    ["struct", "class", "union", "enum", "namespace", "typename", "goto", "using", "..."];

/// Specifiers with an argument in parentheses.
const SPECIFIERS: [&str; 7] =
    ["decltype", "__typeof__", "alignas", "__attribute__", "__attribute", "__declspec", "explicit"];

/// Longest part of a declaration that is searched, in tokens.
const LONGEST: usize = 256;

/// The brackets and template lists around each token of a text.
pub(crate) struct Brackets {
    /// The innermost bracket or `<` that is open at each token.
    around: Vec<Option<usize>>,
    /// For each `>` that ends a template list, its `<`.
    lists: Vec<Option<usize>>,
}

impl Brackets {
    pub(crate) fn new(tokens: &TokenBuffer) -> Self {
        let (mut around, mut lists) = (Vec::with_capacity(tokens.len()), vec![None; tokens.len()]);
        let mut open: Vec<(usize, usize)> = Vec::new();
        for i in 0..tokens.len() {
            while open.pop_if(|(_, behind)| *behind <= i + 1).is_some() {}
            around.push(open.last().map(|(open, _)| *open));
            let behind = match tokens.spelling(i) {
                "(" | "[" | "{" => tokens.after_group(i),
                "<" if i > 0 && tokens.is_identifier(i - 1) => {
                    let behind = tokens.after_template_list(i);
                    if let Some(behind) = behind {
                        lists[behind - 1].get_or_insert(i);
                    }
                    behind
                }
                _ => None,
            };
            open.extend(behind.map(|behind| (i, behind)));
        }
        Self { around, lists }
    }

    /// Whether the address space at token `i` is a qualifier. `in_body`: whether the innermost scope is a function's body.
    pub(crate) fn is_qualifier(&self, tokens: &TokenBuffer, i: usize, in_body: bool) -> bool {
        Place { brackets: self, tokens, in_body }.is_qualifier(i)
    }
}

/// What stands before a `)`.
#[derive(PartialEq, Eq)]
enum Group {
    /// `decltype(…)`, `alignas(…)`
    Specifier,
    /// `if (…)`
    Statement,
    /// Parameters.
    Function,
    Other,
}

struct Place<'a> {
    brackets: &'a Brackets,
    tokens: &'a TokenBuffer<'a>,
    in_body: bool,
}

impl Place<'_> {
    fn is_qualifier(&self, i: usize) -> bool {
        let (from, behind) = (self.before_qualifiers(i), self.behind_qualifiers(i));
        let next = self.word(behind);
        if BEFORE_A_NAME.contains(&self.before(from)) {
            return false;
        }
        if self.before(from) == ")" && self.group(from - 1) == Group::Function {
            let ends = matches!(next, "{" | ";" | "=" | "->" | ":" | "," | ">" | ")");
            let goes_on = matches!(next, "noexcept" | "override" | "final" | "requires" | "__attribute__");
            return (!self.in_body || self.before_group(from - 1) == "]") && (ends || goes_on);
        }
        let first = self.type_start(from);
        let has_type =
            (first..from).any(|t| self.tokens.is_identifier(t) || matches!(self.word(t), ">" | ")"));
        let reference = |t: usize| matches!(self.word(t), "*" | "&" | "&&");
        let declares = self.tokens.is_identifier(behind) && !NO_TYPE.contains(&next)
            || next == "::"
            || has_type
                && (reference(behind)
                    || next == "..."
                    || next == "(" && reference(self.behind_qualifiers(behind)));
        if !declares {
            // A type without a name, which is a template's argument.
            let list = self.brackets.around.get(i).copied().flatten().filter(|&open| self.word(open) == "<");
            if !has_type
                || !matches!(next, ">" | "," | "[" | "...")
                || list.is_none_or(|open| self.before(open) == "template")
            {
                return false;
            }
        }
        self.begins_type(first)
    }

    fn word(&self, i: usize) -> &str {
        self.tokens.spelling(i)
    }

    fn before(&self, i: usize) -> &str {
        self.tokens.spelling(i.wrapping_sub(1))
    }

    fn is_qualifier_word(&self, i: usize) -> bool {
        let word = self.word(i);
        matches!(word, "const" | "volatile" | "coherent" | "__restrict" | "restrict")
            || ADDRESS_SPACES.contains(&word)
    }

    /// The token after the qualifiers and attributes at `i`.
    fn behind_qualifiers(&self, i: usize) -> usize {
        let mut at = i + 1;
        while at < i + LONGEST {
            let scope = self.word(at) == "(" && self.before(at) == "coherent";
            at = match self.word(at) {
                _ if self.is_qualifier_word(at) => at + 1,
                _ if self.tokens.kind(at) == Some(TokenKind::Directive) => at + 1,
                "(" if scope => self.tokens.after_group(at).unwrap_or(at + 1),
                "__attribute__" => self.tokens.after_group(at + 1).unwrap_or(at + 1),
                _ => match self.tokens.after_attribute_list(at) {
                    Some(behind) => behind,
                    None => break,
                },
            };
        }
        at
    }

    /// The first of the qualifiers that include `i`.
    fn before_qualifiers(&self, i: usize) -> usize {
        let mut at = i;
        while at > i.saturating_sub(LONGEST) {
            let last = at - 1;
            let scope = (self.word(last) == ")" && self.before_group(last) == "coherent")
                .then(|| self.tokens.matching_bracket(last))
                .flatten();
            at = match scope {
                Some(open) => open,
                None if self.is_qualifier_word(last) => last,
                None if self.tokens.kind(last) == Some(TokenKind::Directive) => last,
                None => break,
            };
        }
        at
    }

    /// The word before the group that ends with token `close`.
    fn before_group(&self, close: usize) -> &str {
        self.tokens.matching_bracket(close).map_or("", |open| self.before(open))
    }

    fn group(&self, close: usize) -> Group {
        let Some(open) = self.tokens.matching_bracket(close) else { return Group::Other };
        match self.before(open) {
            "if" | "while" | "for" | "switch" => Group::Statement,
            "constexpr" if self.before(open - 1) == "if" => Group::Statement,
            word if SPECIFIERS.contains(&word) => Group::Specifier,
            word if NO_TYPE.contains(&word) => Group::Other,
            "]" | ")" | ">" => Group::Function,
            _ if open > 0 && self.tokens.is_identifier(open - 1) => Group::Function,
            _ if self.names_operator(open) => Group::Function,
            _ => Group::Other,
        }
    }

    /// Whether the parenthesis at `open` follows `operator+` or `operator T*`.
    fn names_operator(&self, open: usize) -> bool {
        let is_operator = |t: usize| self.word(t) == "operator";
        (2..=3).any(|back| is_operator(open.wrapping_sub(back)))
            || (self.type_start(open)..open).any(is_operator)
    }

    /// The first token of the specifiers and types before token `i`.
    fn type_start(&self, i: usize) -> usize {
        let mut at = i;
        while at > i.saturating_sub(LONGEST) {
            let last = at - 1;
            let bracket = self.tokens.matching_bracket(last).filter(|&open| open < last);
            at = match (self.word(last), bracket) {
                (">", _) => match self.brackets.lists[last] {
                    Some(open) if self.before(open) != "template" => open,
                    _ => break,
                },
                ("*" | "&" | "&&" | "::", _) => last,
                (")", Some(open)) if self.group(last) == Group::Specifier => open - 1,
                ("]", Some(open)) if self.tokens.after_attribute_list(open) == Some(at) => open,
                (word, _) if self.tokens.is_identifier(last) && !NO_TYPE.contains(&word) => last,
                _ if self.tokens.kind(last) == Some(TokenKind::Directive) => last,
                _ => break,
            };
        }
        at
    }

    /// Whether a type may begin at token `i`.
    fn begins_type(&self, i: usize) -> bool {
        let Some(last) = i.checked_sub(1) else { return true };
        match self.word(last) {
            ";" | "{" | "}" | "else" | "do" => self.declares(i),
            ")" => self.group(last) == Group::Statement && self.declares(i),
            ":" => self.is_label(last) && self.declares(i),
            ">" => self.brackets.lists[last].is_some_and(|open| self.before(open) == "template"),
            "<" => self.brackets.around.get(i) == Some(&Some(last)),
            "(" => self.begins_in_parentheses(last),
            "," => match self.brackets.around[last] {
                Some(open) if self.word(open) == "(" => self.begins_in_parentheses(open),
                Some(open) => self.word(open) == "<",
                None => false,
            },
            "=" => {
                let kind = self.word(last.wrapping_sub(2));
                matches!(kind, "using" | "typename" | "class") && self.tokens.is_identifier(last - 1)
            }
            "->" => true,
            _ => self.tokens.kind(last) == Some(TokenKind::StringLiteral) && self.before(last) == "extern",
        }
    }

    fn is_label(&self, colon: usize) -> bool {
        for t in (colon.saturating_sub(16)..colon).rev() {
            match self.word(t) {
                "case" | "default" | "public" | "private" | "protected" => return true,
                ";" | "{" | "}" | ":" => return t + 2 == colon,
                "?" => return false,
                _ => {}
            }
        }
        false
    }

    /// Whether tokens from `i` declare something, if this is a body: a type and a name or a pointer.
    fn declares(&self, i: usize) -> bool {
        let (mut at, mut words) = (i, 0);
        while self.in_body && at < i + LONGEST {
            let reference = |t: usize| matches!(self.word(t), "*" | "&" | "&&");
            at = match self.word(at) {
                "struct" | "class" | "union" | "enum" | "typename" | "operator" | "template" | "typedef"
                | "using" | "decltype" | "__typeof__" => return true,
                _ if self.is_qualifier_word(at) => self.behind_qualifiers(at),
                word if SPECIFIERS.contains(&word) => self.tokens.after_group(at + 1).unwrap_or(at + 1),
                "static" | "constexpr" | "inline" => at + 1,
                "*" | "&" | "&&" => return words > 0,
                "(" => return words > 1 || words == 1 && reference(self.behind_qualifiers(at)),
                "::" => {
                    words = words.max(1);
                    at + 2
                }
                "<" if words > 0 => match self.tokens.after_template_list(at) {
                    Some(behind) => behind,
                    None => return words > 1,
                },
                _ if self.tokens.after_attribute_list(at).is_some() => {
                    self.tokens.after_attribute_list(at).unwrap_or(at + 1)
                }
                "[" if self.before(at) == "auto" => return true,
                _ if self.tokens.is_identifier(at) => {
                    words += 1;
                    at + 1
                }
                _ if self.tokens.kind(at) == Some(TokenKind::Directive) => at + 1,
                _ => return words > 1,
            };
        }
        true
    }

    /// Whether types may begin in the parentheses that token `open` opens: those of parameters, a cast or a statement.
    fn begins_in_parentheses(&self, open: usize) -> bool {
        let Some(name) = open.checked_sub(1) else { return true };
        let close = self.tokens.matching_bracket(open).unwrap_or(open + LONGEST);
        match self.word(name) {
            "if" | "while" | "switch" | "constexpr" => {
                (open..close).any(|t| matches!(self.word(t), "=" | ";" | "{"))
            }
            "for" | "sizeof" | "alignof" | "]" | ")" => true,
            word if SPECIFIERS.contains(&word) || word.starts_with("__") => true,
            word if NO_TYPE.contains(&word) => self.is_cast(open),
            ">" => match self.brackets.lists[name] {
                Some(list) => self.declares_function(list - 1),
                None => self.names_operator(open) || self.is_cast(open),
            },
            _ if self.tokens.is_identifier(name) => self.declares_function(name),
            _ => self.names_operator(open) || self.is_cast(open),
        }
    }

    /// Whether `name` before parentheses is that of a function that is declared, and not called: in a body a type precedes it.
    fn declares_function(&self, name: usize) -> bool {
        let mut at = name;
        while self.before(at) == "::" && at > 1 {
            at -= 2;
        }
        let Some(last) = at.checked_sub(1) else { return true };
        let list = self.brackets.around[name].is_some_and(|open| self.word(open) == "<");
        let word = self.word(last);
        let type_before = self.tokens.is_identifier(last) && !NO_TYPE.contains(&word);
        let alias = word == "=" && self.word(last.wrapping_sub(2)) == "using";
        !self.in_body || list || type_before || alias || matches!(word, "*" | "&" | ">" | "->")
    }

    /// Whether the parentheses that token `open` opens have nothing but a type, with an operand behind.
    fn is_cast(&self, open: usize) -> bool {
        let Some(behind) = self.tokens.after_group(open) else { return true };
        let mut at = open + 1;
        while at + 1 < behind {
            at = match self.word(at) {
                "*" | "&" | "&&" | "::" => at + 1,
                "<" | "(" | "[" => {
                    match self.tokens.after_template_list(at).or_else(|| self.tokens.after_group(at)) {
                        Some(behind) => behind,
                        None => return false,
                    }
                }
                word if self.tokens.is_identifier(at) && !NO_TYPE.contains(&word) => at + 1,
                _ if self.tokens.kind(at) == Some(TokenKind::Directive) => at + 1,
                _ => return false,
            };
        }
        self.tokens.kind(behind).is_some_and(|kind| kind != TokenKind::Punctuator)
            || matches!(self.word(behind), "(" | "{" | "*" | "&" | "-" | "+" | "~" | "!" | "++" | "--")
    }
}

#[cfg(test)]
mod tests {
    use crate::rewrite::threadgroup::THREADGROUP;
    use crate::rewrite::{AddressSpaces, rewrite};

    use super::ADDRESS_SPACES;

    /// Texts in which `@` qualifies.
    const QUALIFIERS: [&str; 48] = [
        "void f(@ int* p) {}",
        "void f(int @* p, const @ int& q, @ const float& r, float const @& s, @ T (&t)[4], float @ (*u)[2]);",
        "void f(int a, @ ns::T<int, 3>* @* p, @ typename T::type& q, @ auto& r) {}",
        "void f(@ int*, @ T&) {}",
        "template <typename T, @ int* p, typename U = @ T*> void f(@ T* a, T @... b);",
        "@ T* f(@ T& a) { return &a; }",
        "static inline @ T* f();",
        "template <class T> @ T* f();",
        "extern \"C\" @ int* f(@ int* p);",
        "extern \"C\" { @ int* f(); }",
        "inline __attribute__((always_inline)) @ int* f();",
        "auto f(@ int* p) -> @ int* { return p; }",
        "[[visible]] @ int* f();",
        "using P = @ int*; typedef @ int* Q; using F = void(@ int*); typedef void(*G)(@ int*);",
        "struct S { @ int* p; int x; };",
        "struct S { int f() @ { return 1; } int g() const @; S() @ = default; S(int a) @ : x(a) {} int x; };",
        "struct S { int f() @ const noexcept { return 1; } int g() const @ override; auto h() @ -> int; };",
        "struct S { @ S& operator=(@ const S& o) @; bool operator==(S o) const @; int operator()(int a) @ {} };",
        "struct S { operator @ int*() const @; friend @ S& f(@ S& s); private: @ int* q; };",
        "template <class T> void S<T>::f() @ {}",
        "template <class T> struct P<@ T*> {}; template <class T> struct P<@ T> {}; template <> struct P<T @> {};",
        "bool b = is_same_v<@ int*, @ float*> || is_same<T @, @ U>::value;",
        "function<void(@ int*, int @&)> g;",
        "void f() { @ int* p = q; @ float x = 1; @ T y; @ unsigned int z; const @ T w = v; T @* u; @ ns::T t; }",
        "void f() { if (a) @ int* p = q; else @ int* r = q; do @ int* p = q; while (a); }",
        "void f() { for (@ int& x : xs) {} for (@ int* p = a; p < b; p++) {} if (@ int* p = q) {} }",
        "void f() { switch (a) { case 1: @ int* p; break; default: @ T x = 1; } out: @ T y = 1; }",
        "void f() { auto p = (@ int*)q; auto r = (const @ int*)(q + 1); x = *(@ T @*)&y; z = (@ T&)w; }",
        "void f() { g((@ int*)p, (@ ns::T<2>*)p); return (@ int*)-p; }",
        "void f() { auto p = static_cast<@ int*>(q); g<@ int*>(reinterpret_cast<const @ T&>(x)); }",
        "void f() { int n = sizeof(@ int*); using P = @ int*; typedef @ int* Q; decltype(x) @& r = x; }",
        "void f() { auto g = [&](@ int* p, int n) -> @ int* { return p; }; }",
        "void f() { struct S { @ int* p; int g(@ int* q) @ { return 1; } } s; }",
        "void f() { @ struct S { int a; } s; @ struct T t; @ decltype(a) b; }",
        "void f() { @ auto [a, b] = c; @ int (&d)[4] = e; int h(@ int* p); }",
        "void f() {\n#pragma unroll\n@ T x = 1;\n# 7 \"a\"\n@ T y = 2; }",
        "void f() { alignas(16) @ T x[4]; __attribute__((aligned(16))) @ T y[4]; @ alignas(16) T z[4]; }",
        "void f() { @ __attribute__((aligned(16))) T y[4]; [[maybe_unused]] @ T* z = a; }",
        "void f() { if constexpr (a) { @ T* x = y; } while (a) @ T* x = y; }",
        "kernel void f(@ T* a [[buffer(0)]], const @ T& b [[buffer(1)]],\n# 1 \"a\"\nT @ * c) {}",
        "template [[host_name(\"a\")]] kernel void f<int>(@ int*, int @&);",
        "template <> void f<int>(@ int*);",
        "namespace n { @ int* f(); } @ int* n::f() {}",
        "void f(int n = 1, @ int* p = nullptr);",
        "struct A : B<@ int*> { using B<@ int*>::f; };",
        "void f() { array<@ T*, 4> a; array_ref<@ T> b; vec<P<@ T*>, 2> c{}; }",
        "T (*f(@ int* p))[3];",
        "void f() { int y = a < b; @ T x = y; bool c = a > b; @ T* z; }",
    ];

    /// Texts in which `@` is a name.
    const NAMES: [&str; 44] = [
        "void f(int @) {}",
        "void f(device float* @, int n) {}",
        "kernel void f(uint @ [[thread_position_in_grid]]) {}",
        "kernel void f(device T* @ [[buffer(0)]], uint i) {}",
        "void f(int @ = 1);",
        "void f(int @[4]);",
        "template <int @> void f();",
        "template <typename @, int n> void f();",
        "template <class @ = int> void f();",
        "template <typename... @> void f();",
        "struct @ { int a; };",
        "struct S { int @; };",
        "struct S { int @ = 1; };",
        "struct S { int a, @; };",
        "struct S { int @[4]; int b : 2; };",
        "struct S { int @ : 3; };",
        "struct S { int @() { return 1; } };",
        "enum E { @, other };",
        "enum E { other, @ = 1 };",
        "enum class @ { a };",
        "namespace @ { int a; }",
        "using @ = int;",
        "typedef int @;",
        "int @(int a) { return a; }",
        "constant int @ = 1;",
        "constant int @[2] = { 1, 2 };",
        "void f() { int @ = 1; }",
        "void f() { int @{1}; }",
        "void f() { int @(1); }",
        "void f() { int @; }",
        "void f() { int a = 1, @ = 2; }",
        "void f() { auto [@, a] = b; }",
        "void f() { for (auto @ : xs) {} }",
        "void f() { for (int i = 0, @ = 1; i < n; i++) {} }",
        "void f() { auto g = [@] { return 1; }; auto h = [a, &@] { return 1; }; }",
        "void f() { goto @; }",
        "void f() { @: a = 1; }",
        "void f() { @ = 1; @++; --@; }",
        "void f() { @(1); @[2] = 3; @.x = 1; @->x = 1; }",
        "void f() { T a{@, 1}; int b[] = { 1, @ }; }",
        "void f() { if (a) @ = 1; else @ = 2; }",
        "void f() { return @; }",
        "void f() { switch (@) { case @: break; } }",
        "void f() { g(a, @ T); x = @ T; y = a + @ b; z = a ? @ b : c; h(@ b); }",
    ];

    /// The errors about keywords, and the rewritten text.
    fn rewritten(text: &str, spaces: AddressSpaces) -> (Vec<(usize, String)>, String) {
        let found = rewrite(text, spaces);
        let errors = found.errors.into_iter().filter(|(_, message)| message.contains("cannot be a name"));
        (errors.collect(), found.text.text().replace(THREADGROUP, "static"))
    }

    fn has_word(text: &str, word: &str) -> bool {
        text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == word)
    }

    fn is_refused(text: &str, word: &str) -> bool {
        let text = text.replace('@', word);
        let refusals = [AddressSpaces::Erased, AddressSpaces::Annotated].map(|spaces| {
            let (errors, output) = rewritten(&text, spaces);
            let named = errors.iter().any(|(offset, message)| {
                message.contains(&format!("`{word}`")) && text[*offset..].starts_with(word)
            });
            // Erased or reported, and nothing else.
            assert_eq!(named, has_word(&output, word), "{text} became {output}");
            named
        });
        assert_eq!(refusals[0], refusals[1], "{text}");
        refusals[0]
    }

    #[test]
    fn words_are_erased_where_they_qualify_and_refused_elsewhere() {
        let mut wrong = Vec::new();
        for word in ADDRESS_SPACES {
            for text in QUALIFIERS.iter().filter(|text| is_refused(text, word)) {
                wrong.push(text.replace('@', word));
            }
            for text in NAMES {
                // Each place by itself: a word is reported once.
                let places = text.matches('@').count();
                for place in 0..places {
                    let mut parts = text.split('@');
                    let mut one = parts.next().unwrap_or_default().to_owned();
                    for (number, part) in parts.enumerate() {
                        one += if number == place { "@" } else { "a" };
                        one += part;
                    }
                    if !is_refused(&one, word) {
                        wrong.push(one.replace('@', word));
                    }
                }
            }
        }
        assert_eq!(wrong, [""; 0]);
    }
}
