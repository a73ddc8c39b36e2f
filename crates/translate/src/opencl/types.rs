//! Types as clang writes them, `const __global float *__private`, and as MSL writes them, `device const float*`.

/// An address space of OpenCL C.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Space {
    Private,
    Global,
    Local,
    Constant,
}

impl Space {
    /// Its name in MSL.
    pub fn msl(self) -> &'static str {
        match self {
            Self::Private => "thread",
            Self::Global => "device",
            Self::Local => "threadgroup",
            Self::Constant => "constant",
        }
    }
}

/// Qualifiers of one level of a type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Qualifiers {
    pub is_const: bool,
    pub is_volatile: bool,
    pub space: Option<Space>,
}

impl Qualifiers {
    fn word(&mut self, word: &str) -> bool {
        match word {
            "const" => self.is_const = true,
            "volatile" => self.is_volatile = true,
            "restrict" | "__restrict" | "__restrict__" | "__read_only" | "__write_only" => {}
            "__global" => self.space = Some(Space::Global),
            "__local" => self.space = Some(Space::Local),
            "__constant" => self.space = Some(Space::Constant),
            "__private" => self.space = Some(Space::Private),
            _ => return false,
        }
        true
    }

    /// `const volatile `.
    fn msl(&self) -> String {
        let mut text = String::new();
        // Memory in `constant` is const.
        if self.is_const && self.space != Some(Space::Constant) {
            text.push_str("const ");
        }
        if self.is_volatile {
            text.push_str("volatile ");
        }
        text
    }
}

/// A type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Type {
    /// A scalar, a vector, a struct or a typedef; with `struct ` and the like.
    Named(Qualifiers, String),
    Pointer(Qualifiers, Box<Type>),
    Array(Box<Type>, String),
}

impl Type {
    pub fn qualifiers(&self) -> &Qualifiers {
        match self {
            Self::Named(qualifiers, _) | Self::Pointer(qualifiers, _) => qualifiers,
            Self::Array(of, _) => of.qualifiers(),
        }
    }

    pub fn qualifiers_mut(&mut self) -> &mut Qualifiers {
        match self {
            Self::Named(qualifiers, _) | Self::Pointer(qualifiers, _) => qualifiers,
            Self::Array(of, _) => of.qualifiers_mut(),
        }
    }

    /// Qualifiers and name of what pointers and arrays have at their end.
    pub fn base_mut(&mut self) -> (&mut Qualifiers, &str) {
        match self {
            Self::Named(qualifiers, name) => (qualifiers, name),
            Self::Pointer(_, of) | Self::Array(of, _) => of.base_mut(),
        }
    }

    /// What a pointer points to.
    pub fn pointee(&self) -> Option<&Type> {
        if let Self::Pointer(_, to) = self { Some(to) } else { None }
    }

    /// The declaration of `name` with this type, without the address space of the object itself. `rename` gives the names of types in MSL.
    pub fn declare(&self, name: &str, rename: &dyn Fn(&str) -> String) -> String {
        let space = if name.is_empty() { "" } else { " " };
        match self {
            Self::Named(qualifiers, base) => format!("{}{}{space}{name}", qualifiers.msl(), rename(base)),
            Self::Array(of, length) => {
                let mut base = &**of;
                let mut suffix = format!("[{length}]");
                while let Self::Array(of, length) = base {
                    suffix.push_str(&format!("[{length}]"));
                    base = of;
                }
                base.declare(&format!("{name}{suffix}"), rename)
            }
            Self::Pointer(qualifiers, to) => {
                let own = qualifiers.msl();
                let star = format!("*{}{own}{name}", if own.is_empty() { space } else { " " });
                let star = if own.is_empty() { star } else { star.trim_end().to_owned() };
                let place = to.qualifiers().space.unwrap_or(Space::Private).msl();
                match &**to {
                    Self::Array(..) => format!("{place} {}", to.declare(&format!("({star})"), rename)),
                    Self::Named(q, base) => format!("{place} {}{}{star}", q.msl(), rename(base)),
                    Self::Pointer(..) => {
                        format!(
                            "{}{star}",
                            to.declare(&format!("{place} \u{1}"), rename).replace('\u{1}', "")
                        )
                    }
                }
            }
        }
    }
}

/// A scalar type of OpenCL C.
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
    Float,
    Double,
}

impl Scalar {
    pub const ALL: [Self; 12] = [
        Self::Bool,
        Self::Char,
        Self::UChar,
        Self::Short,
        Self::UShort,
        Self::Int,
        Self::UInt,
        Self::Long,
        Self::ULong,
        Self::Half,
        Self::Float,
        Self::Double,
    ];

    pub fn name(self) -> &'static str {
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
            Self::Float => "float",
            Self::Double => "double",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scalar| scalar.name() == name)
    }

    /// Size in bits.
    pub fn bits(self) -> u32 {
        match self {
            Self::Bool | Self::Char | Self::UChar => 8,
            Self::Short | Self::UShort | Self::Half => 16,
            Self::Int | Self::UInt | Self::Float => 32,
            Self::Long | Self::ULong | Self::Double => 64,
        }
    }

    pub fn is_float(self) -> bool {
        matches!(self, Self::Half | Self::Float | Self::Double)
    }

    pub fn is_signed(self) -> bool {
        matches!(self, Self::Char | Self::Short | Self::Int | Self::Long) || self.is_float()
    }

    /// The signed integer of its size.
    pub fn signed(self) -> Self {
        match self.bits() {
            8 => Self::Char,
            16 => Self::Short,
            32 => Self::Int,
            _ => Self::Long,
        }
    }

    /// The unsigned integer of its size.
    pub fn unsigned(self) -> Self {
        match self.bits() {
            8 => Self::UChar,
            16 => Self::UShort,
            32 => Self::UInt,
            _ => Self::ULong,
        }
    }
}

/// What kind of value an expression has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Shape {
    Scalar(Scalar),
    Vector(Scalar, u32),
    Pointer,
    Other,
}

impl Shape {
    /// Of a type without typedefs.
    pub fn of(plain: &str) -> Self {
        let lanes = vector_lanes(plain);
        let head = match plain.split_once("__attribute__((ext_vector_type(") {
            Some((before, after)) => {
                format!("{before}{}", after.split_once(")))").map_or("", |(_, rest)| rest))
            }
            None => plain.to_owned(),
        };
        if head.contains(['*', '[', '(']) {
            return if head.contains('*') && !head.contains('[') { Self::Pointer } else { Self::Other };
        }
        let words = head.split_whitespace().filter(|word| !Qualifiers::default().word(word));
        let words: Vec<&str> = words.collect();
        let scalar = scalar(&words);
        match (scalar, lanes) {
            (Some(scalar), Some(lanes)) => Self::Vector(scalar, lanes),
            (Some(scalar), None) => Self::Scalar(scalar),
            (None, _) if words.first() == Some(&"enum") => Self::Scalar(Scalar::Int),
            (None, _) => builtin_vector(&words).unwrap_or(Self::Other),
        }
    }

    /// The type's name in MSL. Vectors of 8 and 16 components are structs.
    pub fn name(self) -> String {
        match self {
            Self::Scalar(scalar) => scalar.name().to_owned(),
            Self::Vector(scalar, lanes) if lanes > 4 => format!("cl_{}{lanes}", scalar.name()),
            Self::Vector(scalar, lanes) => format!("{}{lanes}", scalar.name()),
            Self::Pointer | Self::Other => String::new(),
        }
    }

    pub fn scalar(self) -> Option<Scalar> {
        if let Self::Scalar(scalar) | Self::Vector(scalar, _) = self { Some(scalar) } else { None }
    }

    pub fn lanes(self) -> u32 {
        if let Self::Vector(_, lanes) = self { lanes } else { 1 }
    }

    pub fn is_vector(self) -> bool {
        matches!(self, Self::Vector(..))
    }

    /// Whether it is a vector of 8 or 16 components.
    pub fn is_wide(self) -> bool {
        self.lanes() > 4
    }

    /// The same shape of another scalar.
    pub fn with(self, scalar: Scalar) -> Self {
        match self {
            Self::Vector(_, lanes) => Self::Vector(scalar, lanes),
            _ => Self::Scalar(scalar),
        }
    }
}

/// `float4` and the like, as a typedef of clang's header.
fn builtin_vector(words: &[&str]) -> Option<Shape> {
    let [name] = words else { return None };
    let digits = name.trim_start_matches(|c: char| !c.is_ascii_digit());
    let lanes: u32 = digits.parse().ok().filter(|lanes| matches!(lanes, 2 | 3 | 4 | 8 | 16))?;
    Some(Shape::Vector(Scalar::named(name.strip_suffix(digits)?)?, lanes))
}

fn vector_lanes(text: &str) -> Option<u32> {
    text.split("ext_vector_type(").nth(1)?.split(')').next()?.trim().parse().ok()
}

/// The scalar that these words name.
pub(super) fn scalar(words: &[&str]) -> Option<Scalar> {
    let has = |word| words.contains(&word);
    if let [one] = words
        && let Some(scalar) = Scalar::named(one)
    {
        return Some(scalar);
    }
    let unsigned = has("unsigned");
    let pick = |signed, other| Some(if unsigned { other } else { signed });
    match words {
        [] => None,
        _ if !words.iter().all(|w| {
            matches!(
                *w,
                "unsigned" | "signed" | "char" | "short" | "int" | "long" | "_Bool" | "__fp16" | "_Float16"
            )
        }) =>
        {
            match words {
                ["size_t" | "uintptr_t"] => Some(Scalar::ULong),
                ["ptrdiff_t" | "intptr_t"] => Some(Scalar::Long),
                _ => None,
            }
        }
        _ if has("_Bool") => Some(Scalar::Bool),
        _ if has("char") => pick(Scalar::Char, Scalar::UChar),
        _ if has("short") => pick(Scalar::Short, Scalar::UShort),
        _ if has("long") => pick(Scalar::Long, Scalar::ULong),
        _ => pick(Scalar::Int, Scalar::UInt),
    }
}

/// Reads a type. `None` for functions, pointers to functions, and types without a name.
pub(super) fn parse(text: &str) -> Option<Type> {
    let tokens: Vec<&str> = super::text::tokens(text, 0).map(|(_, token)| token).collect();
    let mut at = 0;
    let mut qualifiers = Qualifiers::default();
    let mut words: Vec<&str> = Vec::new();
    let mut lanes = None;
    while let Some(&token) = tokens.get(at) {
        if matches!(token, "*" | "[" | "(") {
            break;
        }
        at += 1;
        if token == "__attribute__" {
            lanes = tokens.get(at + 4).and_then(|number| number.parse::<u32>().ok());
            at += 8;
        } else if !qualifiers.word(token) {
            words.push(token);
        }
    }
    let named = scalar(&words).filter(|_| words.len() > 1 || lanes.is_some()).map(|scalar| match lanes {
        Some(lanes) => Shape::Vector(scalar, lanes).name(),
        None => scalar.name().to_owned(),
    });
    let name = named.unwrap_or_else(|| words.join(" "));
    if name.is_empty() {
        return None;
    }
    let (found, at) = declarator(&tokens, at, Type::Named(qualifiers, name))?;
    (at == tokens.len()).then_some(found)
}

/// Reads stars, brackets and groups.
fn declarator(tokens: &[&str], mut at: usize, mut base: Type) -> Option<(Type, usize)> {
    while tokens.get(at) == Some(&"*") {
        at += 1;
        let mut qualifiers = Qualifiers::default();
        while tokens.get(at).is_some_and(|token| qualifiers.word(token)) {
            at += 1;
        }
        base = Type::Pointer(qualifiers, Box::new(base));
    }
    let mut group = None;
    if tokens.get(at) == Some(&"(") {
        if !tokens.get(at + 1).is_some_and(|t| *t == "*" || Qualifiers::default().word(t)) {
            return None;
        }
        // `float (__private *)[2]` qualifies the array.
        let mut inside = at + 1;
        while tokens.get(inside).is_some_and(|token| base.qualifiers_mut().word(token)) {
            inside += 1;
        }
        group = Some(inside);
        let mut depth = 0_usize;
        loop {
            match *tokens.get(at)? {
                "(" => depth += 1,
                ")" => depth -= 1,
                _ => {}
            }
            at += 1;
            if depth == 0 {
                break;
            }
        }
    }
    let mut lengths = Vec::new();
    while tokens.get(at) == Some(&"[") {
        let end = at + tokens[at..].iter().position(|token| *token == "]")?;
        lengths.push(tokens[at + 1..end].concat());
        at = end + 1;
    }
    for length in lengths.into_iter().rev() {
        base = Type::Array(Box::new(base), length);
    }
    match group {
        Some(inside) => {
            let (found, end) = declarator(tokens, inside, base)?;
            (tokens.get(end) == Some(&")")).then_some((found, at))
        }
        None => Some((base, at)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn msl(text: &str, name: &str) -> String {
        parse(text).map_or_else(|| "none".into(), |found| found.declare(name, &str::to_owned))
    }

    #[test]
    fn declarations_in_msl() {
        assert_eq!(msl("const __global float *restrict __private", "p"), "device const float* p");
        assert_eq!(msl("__private uint[4][2]", "a"), "uint a[4][2]");
        assert_eq!(msl("float (__private *__private)[2]", "p"), "thread float (* p)[2]");
        assert_eq!(msl("__global float *__private *__private", "p"), "device float* thread * p");
        assert_eq!(msl("volatile __local unsigned int *", ""), "threadgroup volatile uint*");
        assert_eq!(msl("float __private __attribute__((ext_vector_type(8)))", "v"), "cl_float8 v");
        assert_eq!(msl("__constant struct S *__private const", "s"), "constant struct S* const s");
        assert_eq!(msl("int (int)", "f"), "none");
    }

    #[test]
    fn shapes() {
        let vector = Shape::Vector(Scalar::UInt, 4);
        assert_eq!(Shape::of("unsigned int __private __attribute__((ext_vector_type(4)))"), vector);
        assert_eq!(Shape::of("__private unsigned long"), Shape::Scalar(Scalar::ULong));
        assert_eq!(Shape::of("__global float *__private"), Shape::Pointer);
        assert_eq!(Shape::of("float __attribute__((ext_vector_type(4))) *"), Shape::Pointer);
        assert_eq!(Shape::of("struct S"), Shape::Other);
        assert_eq!(Shape::of("__private uint[4]"), Shape::Other);
    }
}
