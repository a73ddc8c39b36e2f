//! Heads of function declarations: names, parameters, template parameters, and the address spaces of what parameters point to.

use std::collections::BTreeMap;

use super::kernels::AddressSpace;
use super::overloads::is_address_space;
use crate::lex::TokenKind;
use crate::lex::token_buffer::TokenBuffer;

/// Builtin type names, which are no names of parameters.
const TYPE_WORDS: [&str; 13] = [
    "int", "char", "short", "long", "float", "half", "bfloat", "bool", "void", "unsigned", "signed", "auto",
    "uint",
];

/// An object whose address space a function may be overloaded on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// What a parameter refers or points to, after this number of dereferences of a pointer; 0 for the referent of a reference.
    Parameter(usize, usize),
    /// The object of a member function.
    This,
}

/// An address space. The values are those of `__elinvar_address_space`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Space {
    Device = 1,
    Constant = 2,
    Threadgroup = 4,
    Thread = 8,
}

impl Space {
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "device" => Self::Device,
            "constant" => Self::Constant,
            "threadgroup" => Self::Threadgroup,
            "thread" => Self::Thread,
            _ => return None,
        })
    }

    fn letter(self) -> char {
        match self {
            Self::Device => 'd',
            Self::Constant => 'c',
            Self::Threadgroup => 'g',
            Self::Thread => 't',
        }
    }
}

impl From<AddressSpace> for Space {
    fn from(space: AddressSpace) -> Self {
        match space {
            AddressSpace::Device => Self::Device,
            AddressSpace::Constant => Self::Constant,
            AddressSpace::Threadgroup => Self::Threadgroup,
            AddressSpace::Thread => Self::Thread,
        }
    }
}

/// The address spaces that a declaration names.
pub(crate) type Spaces = BTreeMap<Place, Space>;

#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    /// Tokens without a default argument.
    pub from: usize,
    pub to: usize,
    /// The token after the default argument.
    pub behind: usize,
    /// The token of its name.
    pub name: Option<usize>,
    pub pack: bool,
    /// Whether it is an rvalue reference.
    pub rvalue: bool,
}

/// The head of a function declaration. Positions are tokens.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub start: usize,
    pub end: usize,
    /// The name: an identifier, or `operator` with what follows.
    pub name: (usize, usize),
    /// Whether the name has a qualifier, `S::f`.
    pub qualified: bool,
    pub parameters: Vec<Parameter>,
    /// The function's own template parameters, as arguments; `None` for other functions.
    pub template_arguments: Option<String>,
    /// Defaults of template parameters.
    pub template_defaults: Vec<(usize, usize)>,
    pub spaces: Spaces,
    /// Address spaces in template arguments, which are part of the types of the parameters.
    pub in_types: Vec<Space>,
    /// Whether it is an explicit specialization, `template <>`.
    pub specialization: bool,
}

impl Head {
    /// Parse the head in tokens `start..end`, which has a parameter list.
    pub(crate) fn parse(tokens: &TokenBuffer, start: usize, end: usize) -> Option<Self> {
        let mut lists = Vec::new();
        let mut at = start;
        let (mut name, mut candidate) = (None, None);
        let open = loop {
            if at >= end {
                return None;
            }
            let word = tokens.spelling(at);
            at = match word {
                "template" if tokens.spelling(at + 1) == "<" => {
                    let behind = tokens.after_template_list(at + 1)?;
                    lists.push((at + 2, behind - 1));
                    behind
                }
                "__attribute__" | "alignas" | "__declspec" | "decltype" | "__typeof__" => {
                    tokens.after_group(at + 1).unwrap_or(at + 1)
                }
                "operator" => {
                    let from = at;
                    at += 1;
                    if tokens.spelling(at) == "(" {
                        at += 2;
                    }
                    while at < end && tokens.spelling(at) != "(" {
                        at = tokens.after_template_list(at).filter(|_| at > from + 1).unwrap_or(at + 1);
                    }
                    name = Some((from, at));
                    at
                }
                "(" => break at,
                "<" => {
                    let behind = tokens.after_template_list(at);
                    candidate = behind.map(|behind| (behind, at.wrapping_sub(1)));
                    behind.unwrap_or(at + 1)
                }
                _ if tokens.kind(at) == Some(TokenKind::Directive) => at + 1,
                _ => tokens.after_attribute_list(at).unwrap_or(at + 1),
            };
        };
        let name = name.or_else(|| {
            let last = candidate
                .filter(|(behind, _)| *behind == open)
                .map_or(open.wrapping_sub(1), |(_, name)| name);
            tokens.is_identifier(last).then(|| (last, last + 1))
        })?;
        let qualified = tokens.spelling(name.0.wrapping_sub(1)) == "::";
        let close = tokens.matching_bracket(open)?;
        let parameters: Vec<Parameter> = tokens
            .split_commas(open + 1, close)
            .into_iter()
            .filter(|(from, to)| tokens.source_text(*from, *to) != "void")
            .map(|(from, to)| parameter(tokens, from, to))
            .collect();
        let of_class = qualified && lists.len() == 1 && tokens.spelling(name.0.wrapping_sub(2)) == ">";
        let own = lists.last().filter(|_| !of_class);
        let specialization = lists.iter().any(|(from, to)| from == to);
        let mut head = Self {
            start,
            end,
            name,
            qualified,
            parameters,
            template_arguments: own.map(|(from, to)| template_arguments(tokens, *from, *to)),
            template_defaults: lists
                .iter()
                .flat_map(|(from, to)| tokens.split_commas(*from, *to))
                .filter_map(|(from, to)| Some((default(tokens, from, to)?, to)))
                .collect(),
            spaces: Spaces::new(),
            in_types: Vec::new(),
            specialization,
        };
        for number in 0..head.parameters.len() {
            head.read_spaces(tokens, number);
        }
        let of_this = (close + 1..end).filter_map(|t| Space::parse(tokens.spelling(t))).next();
        head.spaces.extend(of_this.map(|space| (Place::This, space)));
        Some(head)
    }

    fn read_spaces(&mut self, tokens: &TokenBuffer, number: usize) {
        let Parameter { from, to, .. } = self.parameters[number];
        let (mut at, mut operators, mut found, mut is_reference) = (from, 0, Vec::new(), false);
        while at < to {
            let word = tokens.spelling(at);
            match word {
                "*" | "&" | "&&" => {
                    operators += 1;
                    is_reference = word != "*";
                }
                "[" => match tokens.after_attribute_list(at) {
                    Some(behind) => {
                        at = behind;
                        continue;
                    }
                    // The first dimension of an array is a pointer, unless a reference to the array is passed.
                    None if !is_reference => {
                        operators += 1;
                        at = tokens.after_group(at).unwrap_or(at + 1);
                        while tokens.spelling(at) == "[" && at < to {
                            at = tokens.after_group(at).unwrap_or(at + 1);
                        }
                        continue;
                    }
                    None => {}
                },
                "<" => {
                    if let Some(behind) = tokens.after_template_list(at).filter(|behind| *behind <= to) {
                        self.in_types.extend((at..behind).filter_map(|t| Space::parse(tokens.spelling(t))));
                        at = behind;
                        continue;
                    }
                }
                _ => found.extend(Space::parse(word).map(|space| (operators, space))),
            }
            at += 1;
        }
        for (operator, space) in found {
            if operator < operators {
                let depth = operators - 1 - operator + usize::from(!is_reference);
                self.spaces.insert(Place::Parameter(number, depth), space);
            }
        }
    }

    /// The name of the overload for this declaration's address spaces.
    pub(crate) fn overload_name(&self, tokens: &TokenBuffer) -> String {
        let letters: String = self.spaces.values().map(|space| space.letter()).collect();
        let words = (self.name.0..self.name.1).map(|t| {
            let word = tokens.spelling(t);
            let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if plain { word.to_owned() } else { word.bytes().map(|b| format!("{b:02x}")).collect() }
        });
        format!("elinvar_overload_{letters}_{}", words.collect::<Vec<_>>().join("_"))
    }

    /// The name in one line.
    pub(crate) fn own_name(&self, tokens: &TokenBuffer) -> String {
        erased(tokens, self.name.0, self.name.1)
    }

    /// What replaces the tokens `name.0..name.1`, and what has to precede it, to declare it by another name: the result of a
    /// conversion.
    pub(crate) fn renamed(&self, tokens: &TokenBuffer, name: &str) -> String {
        let result = match self.is_conversion(tokens) {
            true => format!("{} ", erased(tokens, self.name.0 + 1, self.name.1)),
            false => String::new(),
        };
        format!("{result}{name}")
    }

    fn is_conversion(&self, tokens: &TokenBuffer) -> bool {
        let first = self.name.0 + 1;
        first < self.name.1 && tokens.is_identifier(first)
    }

    /// A declaration by another name, without default arguments; `template_defaults`: with those of template parameters.
    pub(crate) fn declaration(&self, tokens: &TokenBuffer, name: &str, template_defaults: bool) -> String {
        let mut text = String::new();
        let mut at = self.start;
        let mut skipped = if template_defaults { Vec::new() } else { self.template_defaults.clone() };
        skipped.extend(self.parameters.iter().map(|p| (p.to, p.behind)));
        skipped.extend((self.start..self.end).filter_map(|t| Some((t, tokens.after_attribute_list(t)?))));
        let constexpr = (self.start..self.name.0).filter(|&t| tokens.spelling(t) == "constexpr");
        skipped.extend(constexpr.map(|t| (t, t + 1)));
        skipped.push(self.name);
        skipped.sort_unstable();
        for (from, to) in skipped.into_iter().filter(|(from, to)| from < to) {
            if from < at {
                continue;
            }
            text.push_str(&erased(tokens, at, from));
            text.push(' ');
            if from == self.name.0 {
                text.push_str(&self.renamed(tokens, name));
                text.push(' ');
            }
            at = to;
        }
        text.push_str(&erased(tokens, at, self.end));
        text.push_str("; ");
        text
    }

    /// The default arguments.
    pub(crate) fn defaults(&self, tokens: &TokenBuffer) -> Vec<String> {
        self.parameters.iter().map(|p| tokens.source_text(p.to, p.behind).to_owned()).collect()
    }

    /// The type of the result.
    pub(crate) fn result(&self, tokens: &TokenBuffer) -> String {
        if self.is_conversion(tokens) {
            return erased(tokens, self.name.0 + 1, self.name.1);
        }
        let (mut text, mut at) = (String::new(), self.start);
        while at < self.name.0 {
            at = match tokens.spelling(at) {
                "template" => tokens.after_template_list(at + 1).unwrap_or(at + 1),
                "__attribute__" | "alignas" | "__declspec" => tokens.after_group(at + 1).unwrap_or(at + 1),
                "static" | "inline" | "constexpr" | "friend" | "explicit" | "extern" => at + 1,
                _ => match tokens.after_attribute_list(at) {
                    Some(behind) => behind,
                    None => {
                        text.push_str(&erased(tokens, at, at + 1));
                        text.push(' ');
                        at + 1
                    }
                },
            };
        }
        text.trim().to_owned()
    }

    /// Whether the type of the result is deduced from the body, so that it is not known before.
    pub(crate) fn deduces_result(&self, tokens: &TokenBuffer) -> bool {
        self.template_arguments.is_none()
            && self.result(tokens).split_whitespace().any(|word| word == "auto")
            && !(self.start..self.end).any(|t| tokens.spelling(t) == "->")
    }

    /// The call of the overload with this name, with the parameters as arguments.
    pub(crate) fn call(&self, tokens: &TokenBuffer, name: &str) -> String {
        let templated = self.template_arguments.as_ref().filter(|list| !list.is_empty());
        let list = templated.map(|list| format!("<{list}>")).unwrap_or_default();
        let arguments = self.parameters.iter().enumerate().map(|(i, p)| {
            let name = self.parameter_name(tokens, i);
            let value = if p.rvalue { format!("static_cast<decltype({name})>({name})") } else { name };
            if p.pack { format!("{value}...") } else { value }
        });
        format!("{name}{list}({})", arguments.collect::<Vec<_>>().join(", "))
    }

    /// The name of a parameter, which an unnamed one is given.
    pub(crate) fn parameter_name(&self, tokens: &TokenBuffer, number: usize) -> String {
        match self.parameters[number].name {
            Some(token) => tokens.spelling(token).to_owned(),
            None => format!("elinvar_parameter_{number}"),
        }
    }

    /// The address of an object.
    pub(crate) fn address(&self, tokens: &TokenBuffer, place: Place) -> String {
        match place {
            Place::This => "this".to_owned(),
            Place::Parameter(number, 0) => {
                format!("__builtin_addressof({})", self.parameter_name(tokens, number))
            }
            Place::Parameter(number, depth) => {
                format!("{}{}", "*".repeat(depth - 1), self.parameter_name(tokens, number))
            }
        }
    }
}

fn parameter(tokens: &TokenBuffer, from: usize, behind: usize) -> Parameter {
    let to = default(tokens, from, behind).unwrap_or(behind);
    let declarator = (from..to).find(|&t| tokens.after_attribute_list(t).is_some()).unwrap_or(to);
    let is_pack = (from..to).any(|t| tokens.spelling(t) == "...");
    Parameter {
        from,
        to,
        behind,
        name: parameter_name(tokens, from, declarator),
        pack: is_pack,
        rvalue: tokens.spelling(declarator.wrapping_sub(2)) == "&&",
    }
}

/// The `=` of a default in tokens `from..to`.
fn default(tokens: &TokenBuffer, from: usize, to: usize) -> Option<usize> {
    let mut at = from;
    while at < to {
        match tokens.spelling(at) {
            "=" => return Some(at),
            "(" | "[" | "{" => at = tokens.after_group(at).unwrap_or(at + 1),
            "<" => at = tokens.after_template_list(at).filter(|&behind| behind <= to).unwrap_or(at + 1),
            _ => at += 1,
        }
    }
    None
}

fn parameter_name(tokens: &TokenBuffer, from: usize, to: usize) -> Option<usize> {
    let mut last = to.checked_sub(1)?;
    let mut at = from;
    while at < to {
        match tokens.spelling(at) {
            // `(&a)[4]` and `(*f)(int)`.
            "(" => {
                last = tokens.matching_bracket(at)?.checked_sub(1)?;
                break;
            }
            "[" => {
                last = at.checked_sub(1)?;
                break;
            }
            "<" => at = tokens.after_template_list(at).filter(|&behind| behind <= to).unwrap_or(at + 1),
            _ => at += 1,
        }
    }
    let of_type = |t: usize| {
        let word = tokens.spelling(t);
        let qualifier = matches!(word, "const" | "volatile" | "typename" | "struct" | "class" | "coherent");
        !qualifier && !is_address_space(word) && (tokens.is_identifier(t) || word == ">")
    };
    let plain = tokens.is_identifier(last)
        && !TYPE_WORDS.contains(&tokens.spelling(last))
        && !is_address_space(tokens.spelling(last))
        && !matches!(tokens.spelling(last), "const" | "volatile")
        && tokens.spelling(last.wrapping_sub(1)) != "::";
    (plain && (from..last).any(of_type)).then_some(last)
}

/// Template parameters as arguments, up to the first one without a name.
fn template_arguments(tokens: &TokenBuffer, from: usize, to: usize) -> String {
    let mut arguments = Vec::new();
    for (from, behind) in tokens.split_commas(from, to) {
        let to = default(tokens, from, behind).unwrap_or(behind);
        let last = to.wrapping_sub(1);
        let named = to > from + 1
            && tokens.is_identifier(last)
            && !TYPE_WORDS.contains(&tokens.spelling(last))
            && tokens.spelling(last.wrapping_sub(1)) != "::";
        if !named {
            break;
        }
        let is_pack = (from..to).any(|t| tokens.spelling(t) == "...");
        arguments.push(format!("{}{}", tokens.spelling(last), if is_pack { "..." } else { "" }));
    }
    arguments.join(", ")
}

/// The text of tokens `from..to` in one line, without address spaces.
fn erased(tokens: &TokenBuffer, from: usize, to: usize) -> String {
    let mut text = String::new();
    for t in from..to.min(tokens.len()) {
        if t > from && tokens.start(t) > tokens.start(t - 1) + tokens.spelling(t - 1).len() {
            text.push(' ');
        }
        match tokens.spelling(t) {
            "device" | "thread" | "threadgroup" => {}
            "constant" => text.push_str("const"),
            _ if tokens.kind(t) == Some(TokenKind::Directive) => {}
            word => text.push_str(word),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> (TokenBuffer<'_>, Head) {
        let tokens = TokenBuffer::new(text);
        let end = (0..tokens.len()).rfind(|&t| matches!(tokens.spelling(t), "{" | ";" | ":")).unwrap();
        let head = Head::parse(&tokens, 0, end).unwrap();
        (tokens, head)
    }

    #[test]
    fn names_parameters_and_template_arguments() {
        for (text, expected) in [
            ("float f(device float* a, uint n = 3) {", "f(a, n)"),
            (
                "template <typename U, typename T = int, int N> U f(const device T* a, uint, A::B c) {",
                "f<U, T, N>(a, elinvar_parameter_1, c)",
            ),
            ("template <typename... A> void g(thread A&... a) {", "g<A...>(a...)"),
            ("template <typename T, typename = enable_if_t<(1 > 0)>, int N> void g(T a) {", "g<T>(a)"),
            (
                "void h(threadgroup float (&a)[4], device int (*)(int), thread T&& b, vec<T, 4>) {",
                "h(a, elinvar_parameter_1, static_cast<decltype(b)>(b), elinvar_parameter_3)",
            ),
            ("template <class T> T S<T>::get(unsigned int) const device {", "get(elinvar_parameter_0)"),
            ("template <class T> template <class U> U S<T>::get(unsigned n) const device {", "get<U>(n)"),
            ("template <> float f<float>(device float* a) {", "f(a)"),
            ("METAL_FUNC __attribute__((x(1))) decltype(a(1)) f(void) {", "f()"),
            ("float operator()(uint i) const device {", "operator()(i)"),
            ("bool operator<(device const A& a, device const A& b) {", "operator<(a, b)"),
        ] {
            let (tokens, head) = parse(text);
            assert_eq!(head.call(&tokens, tokens.source_text(head.name.0, head.name.1)), expected, "{text}");
        }
    }

    #[test]
    fn spaces_belong_to_what_is_pointed_to() {
        for (text, expected) in [
            ("f(device float* a);", "a:Device"),
            ("f(constant A& a, thread const B* const b);", "__builtin_addressof(a):Constant b:Thread"),
            ("f(device float* thread& a);", "__builtin_addressof(a):Thread a:Device"),
            ("f(device float* thread* a);", "a:Thread *a:Device"),
            ("f(threadgroup T (&a)[4], device T a[2][3]);", "__builtin_addressof(a):Threadgroup a:Device"),
            ("f(P<device T*> a, int b) const threadgroup;", "this:Threadgroup"),
        ] {
            let (tokens, head) = parse(text);
            let found = head
                .spaces
                .iter()
                .map(|(place, space)| format!("{}:{space:?}", head.address(&tokens, *place)));
            assert_eq!(found.collect::<Vec<_>>().join(" "), expected, "{text}");
        }
        assert_eq!(parse("f(P<device T*> a);").1.in_types, [Space::Device]);
    }

    #[test]
    fn declarations_by_another_name() {
        for (text, expected) in [
            (
                "template <typename T, int N = 4> METAL_FUNC constexpr T f(const constant T* a, uint n = g(1, 2)) {",
                "template <typename T, int N > METAL_FUNC T x (const const T* a, uint n ); ",
            ),
            ("operator vec<T, 2>() const threadgroup {", "vec<T, 2> x () const ; "),
            ("[[a]] bool operator ==(device A& a) {", "bool x ( A& a); "),
        ] {
            let (tokens, head) = parse(text);
            let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(squeezed(&head.declaration(&tokens, "x", false)), squeezed(expected), "{text}");
        }
        let (tokens, head) = parse("bool operator==(device A& a, threadgroup B& b) {");
        assert_eq!(head.overload_name(&tokens), "elinvar_overload_dg_operator_3d3d");
    }
}
