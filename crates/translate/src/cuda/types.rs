//! Types as clang writes them, and their form in MSL.

use super::names::Names;

/// Address space of a pointer or reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Space {
    Device,
    Constant,
    Threadgroup,
    Thread,
}

impl Space {
    pub fn word(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Constant => "constant",
            Self::Threadgroup => "threadgroup",
            Self::Thread => "thread",
        }
    }
}

/// A type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ty {
    /// Qualifiers, and the name as clang writes it.
    Named {
        is_const: bool,
        is_volatile: bool,
        name: String,
    },
    Pointer(Box<Ty>),
    Reference(Box<Ty>),
    Array(Box<Ty>, String),
    /// A function, or what else has no counterpart.
    Other(String),
}

impl Ty {
    pub fn parse(text: &str) -> Self {
        let tokens = tokens(text);
        let mut at = 0;
        parse(&tokens, &mut at).filter(|_| at == tokens.len()).unwrap_or_else(|| Self::Other(text.to_owned()))
    }

    /// Number of pointers and references.
    pub fn levels(&self) -> usize {
        match self {
            Self::Pointer(to) | Self::Reference(to) => 1 + to.levels(),
            Self::Array(of, _) => of.levels(),
            Self::Named { .. } | Self::Other(_) => 0,
        }
    }

    pub fn is_reference(&self) -> bool {
        matches!(self, Self::Reference(_))
    }

    pub fn is_pointer(&self) -> bool {
        matches!(self, Self::Pointer(_))
    }

    pub fn is_array(&self) -> bool {
        matches!(self, Self::Array(..))
    }

    /// The type that a reference is of, or itself.
    pub fn referred(&self) -> &Self {
        if let Self::Reference(to) = self { to } else { self }
    }

    /// What a pointer or array has as its elements.
    pub fn pointee(&self) -> Option<&Self> {
        match self {
            Self::Pointer(to) | Self::Reference(to) | Self::Array(to, _) => Some(to),
            Self::Named { .. } | Self::Other(_) => None,
        }
    }

    /// The name of a type that is no pointer.
    pub fn name(&self) -> Option<&str> {
        if let Self::Named { name, .. } = self { Some(name) } else { None }
    }

    /// The innermost type.
    pub fn innermost(&self) -> &Self {
        match self {
            Self::Pointer(to) | Self::Reference(to) | Self::Array(to, _) => to.innermost(),
            Self::Named { .. } | Self::Other(_) => self,
        }
    }

    fn qualified(self, is_const: bool, is_volatile: bool) -> Self {
        match self {
            Self::Named { is_const: c, is_volatile: v, name } => {
                Self::Named { is_const: c | is_const, is_volatile: v | is_volatile, name }
            }
            Self::Array(of, length) => Self::Array(Box::new(of.qualified(is_const, is_volatile)), length),
            other => other,
        }
    }

    /// Replaces the names of typedefs.
    pub fn resolve(&self, names: &Names<'_>) -> Self {
        match self {
            Self::Named { is_const, is_volatile, name } => match names.alias(name) {
                Some(to) => Self::parse(&to).resolve(names).qualified(*is_const, *is_volatile),
                None => self.clone(),
            },
            Self::Pointer(to) => Self::Pointer(Box::new(to.resolve(names))),
            Self::Reference(to) => Self::Reference(Box::new(to.resolve(names))),
            Self::Array(of, length) => Self::Array(Box::new(of.resolve(names)), length.clone()),
            Self::Other(_) => self.clone(),
        }
    }
}

/// The tokens of a type: words with their template arguments, and signs.
fn tokens(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let c = bytes[at];
        if c.is_ascii_whitespace() {
            at += 1;
            continue;
        }
        let begin = at;
        if text[at..].starts_with("(lambda at ")
            || text[at..].starts_with("(unnamed ")
            || text[at..].starts_with("(anonymous ")
        {
            at += 1 + text[at..].find(')').unwrap_or(text.len() - at - 1);
            // Of a nested name.
            if text[at..].starts_with("::") {
                at = word_end(text, at);
            }
        } else if is_word(c) {
            at = word_end(text, at);
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
        found.push(&text[begin..at]);
    }
    found
}

fn is_word(c: u8) -> bool {
    c.is_ascii_alphanumeric() || c == b'_' || c == b'$' || c >= 0x80
}

/// The end of a name with its template arguments and what it is nested in.
fn word_end(text: &str, mut at: usize) -> usize {
    let bytes = text.as_bytes();
    let mut depth = 0_usize;
    while at < bytes.len() {
        match bytes[at] {
            b'<' => depth += 1,
            b'>' if depth > 0 => depth -= 1,
            _ if depth > 0 => {}
            b':' if bytes.get(at + 1) == Some(&b':') => {
                at += 2;
                if text[at..].starts_with("(anonymous ") || text[at..].starts_with("(unnamed ") {
                    at += text[at..].find(')').unwrap_or(0);
                    at += 1;
                }
                continue;
            }
            c if is_word(c) => {}
            _ => break,
        }
        at += 1;
    }
    at.min(text.len())
}

fn parse(tokens: &[&str], at: &mut usize) -> Option<Ty> {
    let (mut is_const, mut is_volatile) = (false, false);
    let mut words: Vec<&str> = Vec::new();
    while let Some(&token) = tokens.get(*at) {
        match token {
            "*" | "&" | "[" | "(" => break,
            "const" => is_const = true,
            "volatile" => is_volatile = true,
            "struct" | "class" | "enum" | "union" | "typename" | "__restrict" | "__unaligned" => {}
            _ => words.push(token),
        }
        *at += 1;
    }
    if words.is_empty() {
        return None;
    }
    let base = Ty::Named { is_const, is_volatile, name: words.join(" ") };
    declarator(tokens, at, base)
}

fn declarator(tokens: &[&str], at: &mut usize, mut base: Ty) -> Option<Ty> {
    while let Some(&token) = tokens.get(*at) {
        match token {
            "*" => base = Ty::Pointer(Box::new(base)),
            "&" if base.is_reference() => {}
            "&" => base = Ty::Reference(Box::new(base)),
            "const" | "volatile" | "__restrict" => {}
            _ => break,
        }
        *at += 1;
    }
    let mut group = None;
    if tokens.get(*at) == Some(&"(") {
        if !matches!(tokens.get(*at + 1), Some(&("*" | "&"))) {
            return None;
        }
        group = Some(*at + 1);
        let mut depth = 0_usize;
        loop {
            match *tokens.get(*at)? {
                "(" => depth += 1,
                ")" => depth -= 1,
                _ => {}
            }
            *at += 1;
            if depth == 0 {
                break;
            }
        }
        if tokens.get(*at) == Some(&"(") {
            return None;
        }
    }
    let mut lengths = Vec::new();
    while tokens.get(*at) == Some(&"[") {
        let length = tokens[*at..].iter().position(|token| *token == "]")?;
        lengths.push(tokens[*at + 1..*at + length].concat());
        *at += length + 1;
    }
    for length in lengths.into_iter().rev() {
        base = Ty::Array(Box::new(base), length);
    }
    match group {
        Some(mut inside) => {
            let found = declarator(tokens, &mut inside, base)?;
            (tokens.get(inside) == Some(&")")).then_some(found)
        }
        None => Some(base),
    }
}

/// A scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Scalar {
    Bool,
    Char,
    UChar,
    Short,
    UShort,
    Int,
    UInt,
    Long,
    ULong,
    Half,
    BFloat,
    Float,
    Double,
}

impl Scalar {
    /// Of a type without qualifiers.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "bool" | "_Bool" => Self::Bool,
            "char" | "signed char" => Self::Char,
            "unsigned char" => Self::UChar,
            "short" => Self::Short,
            "unsigned short" => Self::UShort,
            "int" | "wchar_t" => Self::Int,
            "unsigned int" | "unsigned" => Self::UInt,
            "long" | "long long" => Self::Long,
            "unsigned long" | "unsigned long long" => Self::ULong,
            "_Float16" | "__fp16" => Self::Half,
            "__bf16" => Self::BFloat,
            "float" => Self::Float,
            "double" | "long double" => Self::Double,
            _ => return None,
        })
    }

    /// In MSL.
    pub fn word(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Char => "char",
            Self::UChar => "uchar",
            Self::Short => "short",
            Self::UShort => "ushort",
            Self::Int => "int",
            Self::UInt => "uint",
            Self::Long => "long",
            Self::ULong => "ulong",
            Self::Half => "half",
            Self::BFloat => "bfloat",
            Self::Float => "float",
            Self::Double => "double",
        }
    }

    pub fn is_float(self) -> bool {
        matches!(self, Self::Half | Self::BFloat | Self::Float | Self::Double)
    }

    /// Whether each value is one of `float`.
    pub fn fits_float(self) -> bool {
        matches!(
            self,
            Self::Bool
                | Self::Char
                | Self::UChar
                | Self::Short
                | Self::UShort
                | Self::Half
                | Self::BFloat
                | Self::Float
        )
    }
}

/// The vector of MSL that stands for a struct of CUDA's header: `float4` for `float4`, `packed_float3` for `float3`.
pub(super) fn vector(name: &str) -> Option<(Scalar, usize)> {
    let found = match name {
        "dim3" => (Scalar::UInt, 3),
        "__half2" => (Scalar::Half, 2),
        "__nv_bfloat162" => (Scalar::BFloat, 2),
        _ => {
            let lanes = name.chars().last()?.to_digit(10).filter(|lanes| (1..=4).contains(lanes))? as usize;
            let scalar = match &name[..name.len() - 1] {
                "char" => Scalar::Char,
                "uchar" => Scalar::UChar,
                "short" => Scalar::Short,
                "ushort" => Scalar::UShort,
                "int" => Scalar::Int,
                "uint" => Scalar::UInt,
                "long" | "longlong" => Scalar::Long,
                "ulong" | "ulonglong" => Scalar::ULong,
                "float" => Scalar::Float,
                "double" => Scalar::Double,
                _ => return None,
            };
            (scalar, lanes)
        }
    };
    Some(found)
}

/// Its name in MSL. A vector of one component is a scalar in MSL.
pub(super) fn vector_name(scalar: Scalar, lanes: usize) -> String {
    match lanes {
        1 => format!("packed_{}1", scalar.word()),
        3 => format!("packed_{}3", scalar.word()),
        _ => format!("{}{lanes}", scalar.word()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_clang() {
        let named = |text: &str| Ty::Named { is_const: false, is_volatile: false, name: text.into() };
        assert_eq!(Ty::parse("float *__restrict"), Ty::Pointer(Box::new(named("float"))));
        assert_eq!(Ty::parse("Acc<float, 4>[2]"), Ty::Array(Box::new(named("Acc<float, 4>")), "2".into()));
        assert_eq!(
            Ty::parse("unsigned int (&)[3][4]"),
            Ty::Reference(Box::new(Ty::Array(
                Box::new(Ty::Array(Box::new(named("unsigned int")), "4".into())),
                "3".into()
            )))
        );
        assert_eq!(Ty::parse("const (lambda at /a/b.cu:3:4) &").levels(), 1);
        assert!(matches!(Ty::parse("float (*)(float)"), Ty::Other(_)));
        assert_eq!(
            Ty::parse("std::pair<int, float (*)[2]>::type &&").innermost().name(),
            Some("std::pair<int, float (*)[2]>::type")
        );
    }
}
