//! Kernel declarations: names, parameters and attributes, from tokens.

use std::ops::Range;

use crate::lex::TokenKind;
use crate::lex::token_buffer::TokenBuffer;
use crate::rewrite::attributes::{self, Attribute};

/// A kernel.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// The name for the host: of `[[host_name]]`, or of the function.
    pub name: String,
    /// The id-expression of the function, `add` or `add<float>`.
    pub callee: String,
    /// Enclosing namespaces, outermost first.
    pub namespaces: Vec<String>,
    pub params: Vec<Param>,
    /// `[[max_total_threads_per_threadgroup]]`.
    pub max_threads: Option<Attribute>,
    /// The template that `max_threads` is written on.
    pub limited: Option<Template>,
    /// The function's type in rewritten text, which selects one overload; `None` where the name alone does.
    pub function: Option<String>,
    /// The templates of this name, as indices, of which this kernel instantiates one; empty for a definition.
    pub candidates: Vec<usize>,
    /// Offset of the name.
    pub offset: usize,
}

/// What names a kernel template's parameters and their types.
#[derive(Clone, Debug, Default)]
pub(crate) struct Template {
    /// The template parameter list, `<typename T, int N>`.
    pub head: String,
    /// The function parameters in rewritten text.
    pub parameters: String,
}

/// A parameter.
#[derive(Clone, Debug)]
pub(crate) struct Param {
    /// Empty if unnamed.
    pub name: String,
    pub attributes: Vec<Attribute>,
    /// Address space of the pointee.
    pub space: Option<AddressSpace>,
    /// Whether it is a struct whose members have attributes; set once its type is known.
    pub has_members: bool,
    /// Offset of the parameter.
    pub offset: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressSpace {
    Device,
    Constant,
    Threadgroup,
    Thread,
}

/// Kind of a declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeclarationKind {
    /// A function with a body.
    Definition,
    /// `kernel void f(…);`
    Prototype,
    /// `template<…> kernel void f(…) …`, or a specialization `template<> kernel void f(…) …` without a host name.
    Template,
    /// `template kernel void f<float>(…);`
    Instantiation,
}

/// A declaration at the beginning of a statement.
pub(crate) struct Declaration {
    pub kind: DeclarationKind,
    pub kernel: Kernel,
    /// The tokens before the name, without template parameter lists.
    pub result: Range<usize>,
    /// The tokens between the parentheses.
    pub parameters: Option<Range<usize>>,
}

/// Parse the declaration whose statement begins at `head`. `None` if it is not a function.
pub(crate) fn parse(tokens: &TokenBuffer, head: usize, namespaces: &[String]) -> Option<Declaration> {
    let mut at = head;
    let mut template_head = None;
    while tokens.spelling(at) == "template" && tokens.spelling(at + 1) == "<" {
        let behind = tokens.after_template_list(at + 1)?;
        template_head = Some(tokens.source_text(at + 1, behind).to_owned());
        at = behind;
    }
    let instantiation = tokens.spelling(at) == "template";
    let before_result = at + usize::from(instantiation);
    let mut found = Vec::new();
    let mut callee = None;
    let open = loop {
        if let Some(behind) = tokens.after_attribute_list(at) {
            found.extend(attributes::parse(tokens, at, behind));
            at = behind;
        } else if matches!(tokens.spelling(at), "__attribute__" | "alignas" | "decltype")
            && tokens.spelling(at + 1) == "("
        {
            at = tokens.after_group(at + 1)?;
        } else if tokens.spelling(at) == "<" {
            at = tokens.after_template_list(at)?;
        } else if tokens.is_identifier(at) {
            let behind = tokens.after_template_list(at + 1).unwrap_or(at + 1);
            callee = Some((at, behind));
            at += 1;
        } else if tokens.spelling(at) == "(" {
            break Some(at);
        } else if tokens.spelling(at) == ";" && instantiation {
            break None;
        } else if matches!(tokens.spelling(at), "::" | "*" | "&")
            || tokens.kind(at) == Some(TokenKind::StringLiteral)
        {
            at += 1;
        } else {
            return None;
        }
    };
    let (name_at, name_end) = callee?;
    let (params, parameters, mut end) = match open {
        Some(open) => {
            let behind = tokens.after_group(open)?;
            (params(tokens, open + 1, behind - 1), Some(open + 1..behind - 1), behind)
        }
        None => (Vec::new(), None, at),
    };
    while let Some(behind) = tokens.after_attribute_list(end) {
        found.extend(attributes::parse(tokens, end, behind));
        end = behind;
    }
    let host_name = found.iter().find(|a| a.name == "host_name").and_then(|a| a.argument.clone());
    let specialization =
        template_head.as_deref().is_some_and(|head| head[1..head.len() - 1].trim().is_empty());
    let kind = match (template_head.is_some(), instantiation, tokens.spelling(end)) {
        (true, _, "{") if specialization && host_name.is_some() => DeclarationKind::Definition,
        (true, ..) => DeclarationKind::Template,
        (_, true, _) => DeclarationKind::Instantiation,
        (.., "{") => DeclarationKind::Definition,
        _ => DeclarationKind::Prototype,
    };
    let name = host_name.map_or_else(|| tokens.spelling(name_at).to_owned(), |n| literal(&n));
    let mut first = name_at;
    while first >= 2 && tokens.spelling(first - 1) == "::" {
        let scope = tokens.is_identifier(first - 2) && !is_type_word(tokens.spelling(first - 2));
        if !scope {
            // Of the global namespace: `void ::a::f`.
            first -= 1;
            break;
        }
        first -= 2;
    }
    let callee = tokens.source_text(first, name_end);
    let deduced = (instantiation || specialization) && !callee.contains('<');
    let template = |head| Template { head, parameters: String::new() };
    let kernel = Kernel {
        name,
        callee: if deduced { format!("{callee}<>") } else { callee.to_owned() },
        namespaces: namespaces.to_vec(),
        params,
        max_threads: found.into_iter().find(|a| a.name == "max_total_threads_per_threadgroup"),
        limited: template_head.filter(|_| kind == DeclarationKind::Template).map(template),
        function: None,
        candidates: Vec::new(),
        offset: tokens.start(name_at),
    };
    Some(Declaration { kind, kernel, result: before_result..first, parameters })
}

impl Kernel {
    /// Fully qualified name, which no using-directive makes ambiguous.
    pub(crate) fn path(&self) -> String {
        if self.callee.starts_with("::") {
            return self.callee.clone();
        }
        let around: String = self.namespaces.iter().map(|n| format!("::{n}")).collect();
        format!("{around}::{}", self.callee)
    }

    /// Template arguments, `<float, 4>`; empty without.
    pub(crate) fn template_arguments(&self) -> &str {
        self.callee.find('<').map_or("", |i| &self.callee[i..])
    }

    /// Unqualified name without template arguments.
    pub(crate) fn base(&self) -> &str {
        let plain = self.callee.split('<').next().unwrap_or_default().trim();
        plain.rsplit("::").next().unwrap_or_default().trim()
    }
}

/// The text of adjacent string literals.
pub(super) fn literal(quoted: &str) -> String {
    let (mut text, mut inside) = (Vec::new(), false);
    let mut rest = quoted.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'"' => inside = !inside,
            b'\\' if inside => {
                let (code, length) = escaped(rest);
                text.push(code);
                rest = &rest[length..];
            }
            byte if inside => text.push(byte),
            _ => {}
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// The byte of an escape sequence, and the length of the sequence without its backslash.
fn escaped(text: &[u8]) -> (u8, usize) {
    let number = |digits: &[u8], radix: u32, most: usize| {
        let digits = digits.iter().take(most).map_while(|byte| char::from(*byte).to_digit(radix));
        digits.fold((0_u32, 0), |(code, length), digit| (code.wrapping_mul(radix) + digit, length + 1))
    };
    match text.first() {
        None => (b'\\', 0),
        Some(b'x') => {
            let (code, length) = number(&text[1..], 16, 2);
            (code as u8, 1 + length)
        }
        Some(b'0'..=b'7') => {
            let (code, length) = number(text, 8, 3);
            (code as u8, length)
        }
        Some(plain) => {
            let known =
                [(b'n', b'\n'), (b't', b'\t'), (b'r', b'\r'), (b'a', 7), (b'b', 8), (b'v', 11), (b'f', 12)];
            (known.iter().find(|(letter, _)| letter == plain).map_or(*plain, |(_, code)| *code), 1)
        }
    }
}

impl Param {
    /// The attribute that makes the parameter conditional on a function constant.
    pub(crate) fn condition(&self) -> Option<&Attribute> {
        self.attributes.iter().find(|a| a.name == "function_constant")
    }

    /// All other attributes.
    pub(crate) fn binding_attributes(&self) -> impl Iterator<Item = &Attribute> {
        self.attributes.iter().filter(|a| a.name != "function_constant")
    }
}

fn params(tokens: &TokenBuffer, from: usize, to: usize) -> Vec<Param> {
    let parts = tokens.split_commas(from, to);
    if let [(a, b)] = parts[..]
        && b == a + 1
        && tokens.spelling(a) == "void"
    {
        return Vec::new();
    }
    parts.into_iter().map(|(a, b)| param(tokens, a, b)).collect()
}

pub(super) fn param(tokens: &TokenBuffer, from: usize, to: usize) -> Param {
    let mut attributes = Vec::new();
    let mut space = None;
    let mut since_pointer = None;
    let mut words: Vec<usize> = Vec::new();
    let mut at = from;
    while at < to {
        if let Some(behind) = tokens.after_attribute_list(at) {
            attributes.extend(attributes::parse(tokens, at, behind));
            at = behind;
            continue;
        }
        if tokens.kind(at) == Some(TokenKind::Directive) {
            at += 1;
            continue;
        }
        match tokens.spelling(at) {
            "__attribute__" => {
                at = tokens.after_group(at + 1).unwrap_or(at + 1);
                continue;
            }
            "=" => break,
            "<" => {
                at = tokens.after_template_list(at).unwrap_or(at + 1);
                words.push(at - 1);
                continue;
            }
            // `device T* p[2]` is a pointer to its elements, `constant T (&r)[2]` is none.
            "[" => {
                if at > from && !matches!(tokens.spelling(at - 1), ")" | "]") {
                    space = Some(since_pointer.take());
                }
                at = tokens.after_group(at).unwrap_or(at + 1);
                continue;
            }
            // `device T* constant* p`: the qualifiers before the last `*` are those of the pointee.
            "*" | "&" => {
                space = Some(since_pointer.take());
                words.push(at);
            }
            "device" => since_pointer = Some(AddressSpace::Device),
            "constant" => since_pointer = Some(AddressSpace::Constant),
            "threadgroup" => since_pointer = Some(AddressSpace::Threadgroup),
            "thread" => since_pointer = Some(AddressSpace::Thread),
            "const" | "volatile" | "coherent" => {}
            _ => words.push(at),
        }
        at += 1;
    }
    // `(&name)[2]`
    while words.last().is_some_and(|last| tokens.spelling(*last) == ")") {
        words.pop();
    }
    let name = match words[..] {
        [.., before, last]
            if tokens.is_identifier(last)
                && tokens.spelling(before) != "::"
                && !is_type_word(tokens.spelling(last)) =>
        {
            tokens.spelling(last).to_owned()
        }
        _ => String::new(),
    };
    let first = (from..to).find(|&t| tokens.kind(t) != Some(TokenKind::Directive)).unwrap_or(from);
    Param {
        name,
        attributes,
        space: space.unwrap_or(since_pointer),
        has_members: false,
        offset: tokens.start(first),
    }
}

fn is_type_word(word: &str) -> bool {
    matches!(word, "int" | "char" | "short" | "long" | "float" | "bool" | "unsigned" | "signed" | "void")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Declaration {
        parse(&TokenBuffer::new(text), 0, &[]).unwrap()
    }

    #[test]
    fn literals_are_read_as_the_compiler_does() {
        let cases = [
            (r#""a\"b""#, "a\"b"),
            (r#""a" "b""#, "ab"),
            (r#""\\" "\x41\102\n""#, "\\AB\n"),
            (r#""é\0""#, "é\0"),
            (r#""\"#, "\\"),
        ];
        for (written, text) in cases {
            assert_eq!(literal(written), text, "{written}");
        }
    }

    #[test]
    fn definitions_and_params() {
        let d = read(
            "[[max_total_threads_per_threadgroup(64)]] kernel void f(device const vec<float, 2>* a [[buffer(1)]], \
             constant uint& n, device float* constant* list, threadgroup half* s [[threadgroup(0)]], \
             uint3 [[thread_position_in_grid]], const uint i [[thread_index_in_simdgroup]]) {",
        );
        assert_eq!(d.kind, DeclarationKind::Definition);
        assert_eq!((d.kernel.name.as_str(), d.kernel.callee.as_str()), ("f", "f"));
        assert_eq!(d.kernel.max_threads.unwrap().argument.as_deref(), Some("64"));
        let names: Vec<_> = d.kernel.params.iter().map(|p| (p.name.as_str(), p.space)).collect();
        let expected = [
            ("a", Some(AddressSpace::Device)),
            ("n", Some(AddressSpace::Constant)),
            ("list", Some(AddressSpace::Constant)),
            ("s", Some(AddressSpace::Threadgroup)),
            ("", None),
            ("i", None),
        ];
        assert_eq!(names, expected);
        assert_eq!(d.kernel.params[4].attributes[0].name, "thread_position_in_grid");
    }

    #[test]
    fn the_address_space_is_that_of_the_outermost_pointer() {
        let d = read(
            "kernel void f(device float* const (&a)[3], device float** b, device float* c[2], device float d[2][3], \
             constant float (&e)[2], device float* constant (&g)[2], device float (*h)[2], device float* device& k) {",
        );
        let names: Vec<_> = d.kernel.params.iter().map(|p| (p.name.as_str(), p.space)).collect();
        let (device, constant) = (Some(AddressSpace::Device), Some(AddressSpace::Constant));
        let expected = [
            ("a", None),
            ("b", None),
            ("c", None),
            ("d", device),
            ("e", constant),
            ("g", constant),
            ("h", device),
            ("k", device),
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn line_markers_are_no_part_of_parameters() {
        let d = read(
            "kernel void f(device float* __restrict a\n# 12 \"x\"\n,\n# 20 \"x\"\nconstant uint &n [[ buffer(1) ]],\n\
             uint i __attribute__((unused)) [[grid_size]]\n# 30 \"x\"\n) {",
        );
        let names: Vec<_> = d.kernel.params.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["a", "n", "i"]);
        assert_eq!(d.kernel.params[2].attributes[0].name, "grid_size");
    }

    #[test]
    fn templates_and_instantiations() {
        let t = read("template <typename T, int N = (1 > 2)> kernel void f(device T* a) {");
        assert_eq!((t.kind, t.kernel.callee.as_str()), (DeclarationKind::Template, "f"));
        let i = read("template [[host_name(\"f_1\")]] [[kernel]] void ns::f<float, 1>(device float*);");
        assert_eq!((i.kind, i.kernel.name.as_str()), (DeclarationKind::Instantiation, "f_1"));
        assert_eq!((i.kernel.callee.as_str(), i.kernel.base()), ("ns::f<float, 1>", "f"));
        let global =
            read("template [[host_name(\"f_2\")]] kernel void ::ns::f<float, 1>(device float*);").kernel;
        assert_eq!(
            (global.callee.as_str(), global.path().as_str()),
            ("::ns::f<float, 1>", "::ns::f<float, 1>")
        );
        assert_eq!(global.base(), "f");
        let joined = read("template [[host_name(\"b\" \"_\" \"f32\")]] kernel void f<int>();");
        assert_eq!(joined.kernel.name, "b_f32");
        let j = read("template [[host_name(\"f_2\")]] kernel f_t f<float>;");
        assert_eq!((j.kind, j.kernel.callee.as_str()), (DeclarationKind::Instantiation, "f<float>"));
        assert!(j.kernel.params.is_empty());
        let deduced = read("template [[host_name(\"d\")]] kernel void n::f(device float*);");
        assert_eq!(
            (deduced.kind, deduced.kernel.callee.as_str()),
            (DeclarationKind::Instantiation, "n::f<>")
        );
        let special = read("template < > [[host_name(\"s\")]] kernel void f<int>(device int* a) {");
        assert_eq!((special.kind, special.kernel.callee.as_str()), (DeclarationKind::Definition, "f<int>"));
        assert_eq!(read("template <> kernel void f<int>(device int* a) {").kind, DeclarationKind::Template);
        assert_eq!(read("kernel void p(void);").kind, DeclarationKind::Prototype);
        assert!(parse(&TokenBuffer::new("kernel = 3;"), 0, &[]).is_none());
    }
}
