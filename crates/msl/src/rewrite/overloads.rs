//! Declarations that differ only by address spaces.
//!
//! MSL overloads on address spaces. Without them such overloads are redefinitions in C++. Those with the same body, apart from address
//! spaces, are removed; functions with other bodies are kept by another name, and [`super::dispatch`] chooses among them. Heads and bodies
//! are compared by tokens, without address spaces and with `const` normalized.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use super::function_head::{Head, Place, Spaces};
use crate::lex::TokenKind;
use crate::lex::token_buffer::TokenBuffer;

/// The declarations of all scopes so far.
#[derive(Default)]
pub(crate) struct OverloadTable {
    /// By scope ID and head.
    seen: HashMap<(usize, Vec<String>), Seen>,
    /// The functions whose bodies differ.
    pub sets: Vec<OverloadSet>,
    /// The functions by scope ID and head without `const`.
    variants: BTreeMap<(usize, Vec<String>), Vec<Variant>>,
    /// Functions by scope ID, name and number of parameters, and then by head without `const`.
    by_name: BTreeMap<(usize, String, usize), ByHead>,
}

/// Functions by head without `const`.
type ByHead = BTreeMap<Vec<String>, Vec<Head>>;

/// A function with address spaces.
pub(crate) struct Variant {
    identity: Vec<String>,
    body: Vec<String>,
    pub defaults: Vec<String>,
    pub head: Head,
    /// The token after its body.
    pub behind: usize,
    pub in_class: bool,
}

struct Seen {
    start: usize,
    end: usize,
    body: Vec<String>,
    /// Default arguments.
    defaults: Vec<String>,
    /// Whether it mentions an address space.
    spaced: bool,
    /// Tuples of address spaces of the removed declarations.
    merged: Vec<Spaces>,
    /// Index of its [`OverloadSet`].
    set: Option<usize>,
}

/// Functions that differ only by address spaces, and in their bodies.
pub(crate) struct OverloadSet {
    /// The function that keeps its name, with all address spaces that its body is for.
    pub first: Head,
    pub spaces: Vec<Spaces>,
    /// The functions that get another name.
    pub others: Vec<Head>,
    /// Whether they are members of a class that is being defined.
    pub in_class: bool,
}

/// A redeclaration.
pub(crate) struct Redeclaration {
    /// The token after it.
    pub behind: usize,
    pub verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The body is the same: to be removed.
    Same,
    /// It has become the last one of [`OverloadSet::others`] of this set.
    Other(usize),
    /// It cannot be told from the declaration that begins at this token.
    Indistinct(usize),
}

impl OverloadTable {
    /// Enter the declaration that begins at token `i` of a class or namespace with this ID.
    pub(crate) fn visit(
        &mut self,
        tokens: &TokenBuffer,
        i: usize,
        scope: usize,
        class: bool,
    ) -> Option<Redeclaration> {
        let (end, is_function) = head_end(tokens, i)?;
        let (body, behind) = match tokens.spelling(end) {
            ":" => {
                let behind = tokens.after_group(initialized(tokens, end)?)?;
                (words(tokens, end, behind), behind)
            }
            "{" => (words(tokens, end, tokens.after_group(end)?), tokens.after_group(end)?),
            "=" | ";" if class && is_function => {
                let semicolon = (end..tokens.len().min(end + 3)).find(|&t| tokens.spelling(t) == ";")?;
                (words(tokens, end, semicolon), semicolon)
            }
            _ => return None,
        };
        let behind = behind + usize::from(tokens.spelling(behind) == ";");
        let spaced = (i..end).any(|t| is_address_space(tokens.spelling(t)));
        let head = if is_function { Head::parse(tokens, i, end) } else { None };
        let mut identity = head_words(tokens, i, end, head.as_ref());
        let defaults = head.as_ref().map(|head| head.defaults(tokens)).unwrap_or_default();
        let is_constructor = is_function && is_constructor(tokens, i, end);
        if is_constructor {
            identity = without_trailing_const(identity);
        }
        if let Some(head) = head.as_ref().filter(|_| tokens.spelling(end) == "{") {
            let name = tokens.source_text(head.name.0, head.name.1).to_owned();
            let key = identity.iter().filter(|word| *word != "const").cloned().collect();
            let named = self.by_name.entry((scope, name, head.parameters.len())).or_default();
            named.entry(key).or_default().push(head.clone());
        }
        let seen = match self.seen.entry((scope, identity)) {
            Entry::Occupied(first) => first.into_mut(),
            Entry::Vacant(slot) => {
                if let Some(head) = head.filter(|head| !head.spaces.is_empty() && tokens.spelling(end) == "{")
                    && !is_constructor
                {
                    let identity = slot.key().1.clone();
                    let variant = Variant {
                        identity,
                        body: body.clone(),
                        defaults: defaults.clone(),
                        head,
                        behind,
                        in_class: class,
                    };
                    let key = variant.identity.iter().filter(|word| *word != "const").cloned().collect();
                    self.variants.entry((scope, key)).or_default().push(variant);
                }
                slot.insert(Seen { start: i, end, body, defaults, spaced, merged: Vec::new(), set: None });
                return None;
            }
        };
        if !spaced && !seen.spaced {
            return None;
        }
        if seen.defaults != defaults {
            return Some(Redeclaration { behind, verdict: Verdict::Indistinct(seen.start) });
        }
        let is_prototype = tokens.spelling(end) == ";";
        if seen.body == body && !is_prototype {
            match (seen.set, head) {
                (Some(set), Some(head)) => self.sets[set].spaces.push(head.spaces),
                (_, head) => seen.merged.extend(head.map(|head| head.spaces)),
            }
            return Some(Redeclaration { behind, verdict: Verdict::Same });
        }
        let verdict = match head.filter(|_| !is_constructor && !is_kernel(tokens, i)) {
            Some(head) => other(seen, &mut self.sets, tokens, head, class),
            None if seen.body == body => Verdict::Same,
            None => Verdict::Indistinct(seen.start),
        };
        Some(Redeclaration { behind, verdict })
    }
}

/// Two functions that differ by address spaces, and in that the second one has `const` where the first does not: C++ prefers the first
/// one for arguments that Metal passes to the second.
pub(crate) struct Preferred<'a> {
    pub first: &'a Variant,
    pub second: &'a Variant,
    /// The address spaces for which there are functions like the first, and functions like the second.
    pub spaces: [Vec<&'a Spaces>; 2],
}

/// Functions that differ by address spaces, another one with the same name, and the sets of address spaces that what their parameters
/// refer to is in.
pub(crate) struct Rivals<'a> {
    pub functions: &'a [Head],
    pub other: &'a Head,
    pub expected: BTreeMap<Place, u8>,
}

/// The set of address spaces of each object.
fn masks(heads: &[Head]) -> BTreeMap<Place, u8> {
    let mut masks = BTreeMap::new();
    for (place, space) in heads.iter().flat_map(|head| &head.spaces) {
        *masks.entry(*place).or_default() |= *space as u8;
    }
    masks
}

impl OverloadTable {
    /// All such pairs whose bodies differ, in the order of the source.
    pub(crate) fn preferred(&self) -> Vec<Preferred<'_>> {
        let mut pairs = Vec::new();
        for ((scope, _), list) in self.variants.iter().filter(|(_, list)| list.len() > 1) {
            for first in list {
                for second in list.iter().filter(|second| first.is_preferred_to(second)) {
                    let (own, own_set) = self.spaces(*scope, first);
                    let (mut others, other_set) = self.spaces(*scope, second);
                    others.retain(|spaces| !own.contains(spaces));
                    let defaults = first.defaults == second.defaults;
                    let same = defaults
                        && first.without_const().eq(second.without_const())
                        && !own_set
                        && !other_set;
                    if !same && !others.is_empty() {
                        pairs.push(Preferred { first, second, spaces: [own, others] });
                    }
                }
            }
        }
        pairs.sort_by_key(|pair| (pair.first.head.start, pair.second.head.start));
        pairs
    }

    /// Functions with the same name, one of them a template, of which C++ may choose another one than Metal.
    pub(crate) fn rivals(&self) -> Vec<Rivals<'_>> {
        let mut rivals = Vec::new();
        for named in self.by_name.values().filter(|named| named.len() > 1) {
            for own in named.values() {
                for others in named.values().filter(|others| others[0].start != own[0].start) {
                    if own[0].template_arguments.is_none() && others[0].template_arguments.is_none() {
                        continue;
                    }
                    let (mut expected, unlike) = (masks(own), masks(others));
                    expected.retain(|place, mask| {
                        let outer = matches!(place, Place::Parameter(_, 0 | 1));
                        outer && unlike.get(place).is_none_or(|other| other & !*mask != 0)
                    });
                    if !expected.is_empty() {
                        rivals.push(Rivals { functions: own, other: &others[0], expected });
                        break;
                    }
                }
            }
        }
        rivals
    }

    /// The address spaces of functions with this head, and whether their bodies differ.
    fn spaces<'a>(&'a self, scope: usize, variant: &'a Variant) -> (Vec<&'a Spaces>, bool) {
        let seen = self.seen.get(&(scope, variant.identity.clone()));
        match seen.and_then(|seen| seen.set) {
            Some(set) => {
                let OverloadSet { spaces, others, .. } = &self.sets[set];
                (spaces.iter().chain(others.iter().map(|other| &other.spaces)).collect(), true)
            }
            None => {
                let merged = seen.into_iter().flat_map(|seen| &seen.merged);
                (std::iter::once(&variant.head.spaces).chain(merged).collect(), false)
            }
        }
    }
}

impl Variant {
    fn without_const(&self) -> impl Iterator<Item = &String> {
        self.body.iter().filter(|word| *word != "const")
    }

    fn is_preferred_to(&self, other: &Self) -> bool {
        let mut words = self.identity.iter().peekable();
        self.identity.len() < other.identity.len()
            && other.identity.iter().all(|word| words.next_if_eq(&word).is_some() || word == "const")
    }
}

/// Enter a function with another body than the first.
fn other(
    seen: &mut Seen,
    sets: &mut Vec<OverloadSet>,
    tokens: &TokenBuffer,
    head: Head,
    class: bool,
) -> Verdict {
    let indistinct = Verdict::Indistinct(seen.start);
    let set = match seen.set {
        Some(set) => set,
        None => {
            let Some(first) = Head::parse(tokens, seen.start, seen.end) else { return indistinct };
            let spaces = std::iter::once(first.spaces.clone()).chain(seen.merged.drain(..)).collect();
            sets.push(OverloadSet { first, spaces, others: Vec::new(), in_class: class });
            *seen.set.insert(sets.len() - 1)
        }
    };
    let OverloadSet { first, spaces, others, .. } = &mut sets[set];
    let is_known = spaces.contains(&head.spaces) || others.iter().any(|other| other.spaces == head.spaces);
    // A prototype and a definition in one class: the definition of the former is not in the class.
    let kinds = [first.end, head.end].map(|end| tokens.spelling(end));
    if is_known
        || kinds[0] != kinds[1]
        || first.specialization
        || first.deduces_result(tokens)
        || kinds[0] == "="
    {
        return indistinct;
    }
    others.push(head);
    Verdict::Other(set)
}

pub(crate) fn is_address_space(word: &str) -> bool {
    matches!(word, "device" | "constant" | "thread" | "threadgroup")
}

/// Variables that sources declare in `metal` for versions of Metal that lack them.
const OF_LATER_VERSIONS: [&str; 1] = ["thread_scope_system"];

/// The token after the declaration at `i`, if it is a variable that the library declares too.
pub(crate) fn of_library(tokens: &TokenBuffer, i: usize) -> Option<usize> {
    let (end, false) = head_end(tokens, i)? else { return None };
    if tokens.spelling(end) != "=" || !OF_LATER_VERSIONS.contains(&tokens.spelling(end - 1)) {
        return None;
    }
    // Bounds the search; the initializer is a cast of a number.
    (end..end + 40).find(|&t| tokens.spelling(t) == ";").map(|semicolon| semicolon + 1)
}

/// Whether the declaration at `i` is a kernel.
pub(crate) fn is_kernel(tokens: &TokenBuffer, i: usize) -> bool {
    head_end(tokens, i).is_some_and(|(end, _)| {
        (i..end).take_while(|&t| tokens.spelling(t) != "(").any(|t| tokens.spelling(t) == "kernel")
    })
}

/// Whether the declaration at `i` is a variable at namespace scope outside the `constant` address space.
pub(crate) fn is_variable(tokens: &TokenBuffer, i: usize) -> bool {
    let Some((end, false)) = head_end(tokens, i) else { return false };
    let words = (i..end).filter(|&t| tokens.is_identifier(t)).count();
    let other = |t: usize| {
        let class = matches!(tokens.spelling(t), "struct" | "class" | "union") && tokens.spelling(end) != "=";
        class || matches!(tokens.spelling(t), "constant" | "template" | "operator" | "static_assert" | "::")
    };
    tokens.is_identifier(i) && words > 1 && tokens.spelling(end) != "{" && !(i..end).any(other)
}

/// Whether the function declared by tokens `i..end` is a constructor, `C(` or `C::C(`.
pub(crate) fn is_constructor(tokens: &TokenBuffer, i: usize, end: usize) -> bool {
    let mut at = i;
    loop {
        at = match tokens.spelling(at) {
            "constexpr" | "explicit" | "inline" => at + 1,
            "__attribute__" => tokens.after_group(at + 1).unwrap_or(end),
            "template" => tokens.after_template_list(at + 1).unwrap_or(end),
            _ if tokens.kind(at) == Some(TokenKind::Directive) => at + 1,
            _ => match tokens.after_attribute_list(at) {
                Some(behind) => behind,
                None => break,
            },
        };
    }
    let mut class = "";
    while at < end && tokens.is_identifier(at) {
        let behind = tokens.after_template_list(at + 1).unwrap_or(at + 1);
        match tokens.spelling(behind) {
            "(" => return class.is_empty() || class == tokens.spelling(at),
            "::" => class = tokens.spelling(at),
            _ => return false,
        }
        at = behind + 1;
    }
    false
}

/// The brace of the body behind the constructor's initializers that begin at `colon`.
fn initialized(tokens: &TokenBuffer, colon: usize) -> Option<usize> {
    let mut at = colon + 1;
    loop {
        // The name of a member or base, and its arguments.
        while tokens.is_identifier(at) || tokens.spelling(at) == "::" {
            at = tokens.after_template_list(at + 1).unwrap_or(at + 1);
        }
        if !matches!(tokens.spelling(at), "(" | "{") {
            return None;
        }
        at = tokens.after_group(at)?;
        match tokens.spelling(at) {
            "{" => return Some(at),
            "," => at += 1,
            "." if tokens.spelling(at + 1) == "." => at += 3,
            _ => return None,
        }
    }
}

/// The end of a declaration's head, and whether it has a parameter list. A constructor's initializers are not of its head.
fn head_end(tokens: &TokenBuffer, i: usize) -> Option<(usize, bool)> {
    let (mut at, mut is_function) = (i, false);
    // Whether the last token but for attributes is `struct` or such: a type without a name declares nothing by its head.
    let mut is_unnamed = false;
    if matches!(tokens.spelling(i), "namespace" | "using" | "typedef" | "extern" | "kernel" | "enum") {
        return None;
    }
    while at < tokens.len() {
        match tokens.spelling(at) {
            "{" if is_unnamed && !is_function => return None,
            "{" | ";" | "=" => return Some((at, is_function)),
            ":" if is_function => return Some((at, is_function)),
            "}" => return None,
            "operator" => {
                // `operator()` and `operator=` are names; of `operator-()` only the sign is.
                at += 1;
                if tokens.spelling(at) == "(" {
                    at += 2;
                }
                while at < tokens.len() && !tokens.is_identifier(at) && tokens.spelling(at) != "(" {
                    at += 1;
                }
            }
            "struct" | "class" | "union" | "enum" => {
                is_unnamed = true;
                at += 1;
            }
            "alignas" | "__attribute__" if is_unnamed => at = tokens.after_group(at + 1)?,
            "(" => {
                is_function = true;
                at = tokens.after_group(at)?;
            }
            "[" => at = tokens.after_group(at)?,
            "<" => at = tokens.after_template_list(at).unwrap_or(at + 1),
            _ => {
                is_unnamed = false;
                at += 1;
            }
        }
    }
    None
}

/// The tokens without address spaces; `const` first among its specifiers, and once.
fn words(tokens: &TokenBuffer, from: usize, to: usize) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut run = 0;
    for t in from..to {
        let word = if tokens.spelling(t) == "constant" { "const" } else { tokens.spelling(t) };
        match word {
            "device" | "thread" | "threadgroup" => {}
            "const" => {
                if out.get(run).is_none_or(|first| first != "const") {
                    out.insert(run, word.to_owned());
                }
            }
            _ => {
                out.push(word.to_owned());
                if matches!(word, "(" | ")" | "," | "*" | "&" | "<" | ">" | ";" | "{" | "}" | "=") {
                    run = out.len();
                }
            }
        }
    }
    out
}

/// The words of a head, without names and default values of parameters, and specifiers that overloads may have or not.
fn head_words(tokens: &TokenBuffer, from: usize, to: usize, parsed: Option<&Head>) -> Vec<String> {
    let parameters = || parsed.into_iter().flat_map(|head| &head.parameters);
    let mut skipped: Vec<(usize, usize)> =
        parameters().filter_map(|p| p.name).map(|name| (name, name + 1)).collect();
    skipped.extend(parameters().filter(|p| p.to < p.behind).map(|p| (p.to, p.behind)));
    skipped.extend((from..to).filter_map(|t| match tokens.spelling(t) {
        "constexpr" | "inline" => Some((t, t + 1)),
        "__attribute__" => Some((t, tokens.after_group(t + 1).unwrap_or(t + 1))),
        _ => None,
    }));
    skipped.sort_unstable();
    let (mut head, mut at) = (Vec::new(), from);
    for (start, end) in skipped {
        if start >= at {
            head.extend(words(tokens, at, start));
            at = end;
        }
    }
    head.extend(words(tokens, at, to));
    head
}

fn without_trailing_const(mut head: Vec<String>) -> Vec<String> {
    if head.last().is_some_and(|last| last == "const") {
        head.pop();
    }
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of the second of two declarations: kept, or removed, unless it differs.
    fn second(text: &str, class: bool) -> Option<Verdict> {
        let tokens = TokenBuffer::new(text);
        let mut declarations = OverloadTable::default();
        let mut at = 0;
        for _ in 0..2 {
            match declarations.visit(&tokens, at, 0, class) {
                Some(repeated) => return Some(repeated.verdict),
                None => {
                    let next = |from: usize, what| {
                        (from..tokens.len()).find(|&t| tokens.spelling(t) == what).unwrap()
                    };
                    let Some((end, _)) = head_end(&tokens, at) else {
                        at = next(tokens.after_group(next(at, "{")).unwrap(), ";") + 1;
                        continue;
                    };
                    let body = initialized(&tokens, end).filter(|_| tokens.spelling(end) == ":");
                    let end = body.unwrap_or(end);
                    at = if tokens.spelling(end) == "{" {
                        tokens.after_group(end).unwrap()
                    } else {
                        next(end, ";") + 1
                    };
                }
            }
        }
        None
    }

    #[test]
    fn variables_of_a_namespace() {
        let is = |text: &str| is_variable(&TokenBuffer::new(text), 0);
        for text in ["int a;", "struct S s = {1};", "static device int a;", "class C c = C();"] {
            assert!(is(text), "{text}");
        }
        for text in
            ["struct S;", "union U;", "constant int a = 1;", "template <class T> T t = 0;", "int f() {}"]
        {
            assert!(!is(text), "{text}");
        }
    }

    #[test]
    fn functions() {
        assert_eq!(
            second("int f(device int* a) { return *a; } int f(threadgroup int* a) { return *a; }", false),
            Some(Verdict::Same)
        );
        assert_eq!(
            second("int f(device int* a) { return 1; } int f(thread int* a) { return 2; }", false),
            Some(Verdict::Other(0))
        );
        assert_eq!(
            second("int f(constant int* a) { return 1; } int f(device const int* a) { return 1; }", false),
            Some(Verdict::Same)
        );
        assert_eq!(
            second("int f(const device int* a) { return 1; } int f(device int* a) { return 1; }", false),
            None
        );
        assert_eq!(
            second("int f(int a) { return 1; } int f(int a) { return 1; }", false),
            None,
            "clang's to tell"
        );
        assert_eq!(second("int f(device int* a); int f(thread int* a) { return 1; }", false), None);
    }

    #[test]
    fn types_without_names() {
        for text in [
            "constant struct { int a; } x = {1}; constant struct { int a; } y = {2};",
            "constant struct { int a; } x = {1}; constant struct { int b; } y = {2};",
            "constant union alignas(8) { int a; } x = {1}; constant union alignas(8) { int a; } y = {2};",
            "device struct { int a; }* x; device struct { int a; }* y;",
        ] {
            assert_eq!(second(text, false), None, "{text}");
        }
    }

    #[test]
    fn initializers_are_of_the_body() {
        for text in [
            "C(float a) thread : r(a) {} C(float a) constant : r(a) {}",
            "constexpr C(float a) : n::B<int>{a}, r{a, {1}} {} constexpr C(float a) constant : n::B<int>{a}, r{a, {1}} {}",
            "inline __attribute__((x(1))) C(float a) thread : r(a) {} inline __attribute__((x(1))) C(float a) const device : r(a) {}",
            "inline __attribute__((x(1))) C(float a) thread : r(a) {} constexpr C(float a) constant : r(a) {}",
            "C::C(float a) thread : r(a) {} C::C(float a) constant : r(a) {}",
            "C<v<T>>::C(float a) thread {} C<v<T>>::C(float a) constant {}",
        ] {
            assert_eq!(second(text, true), Some(Verdict::Same), "{text}");
        }
        assert_eq!(second("C() thread : r(1) {} C() constant : r(2) {}", true), Some(Verdict::Indistinct(0)));
        assert_eq!(second("C(int a) thread : r(a) {} C(float a) constant : r(a) {}", true), None);
        let body = |text: &str| initialized(&TokenBuffer::new(text), 0);
        assert_eq!(body(": a(1), b{2} {}"), Some(10));
        for text in [": 3;", ": a", ": a(", ":", ": a(1),", ": a(1) + {}"] {
            assert_eq!(body(text), None, "{text}");
        }
    }

    #[test]
    fn members_and_classes() {
        assert_eq!(second("S() thread = default; S() constant = default;", true), Some(Verdict::Same));
        assert_eq!(
            second("constexpr S<T>() = default; constexpr S<T>() threadgroup = default;", true),
            Some(Verdict::Same)
        );
        assert_eq!(
            second("operator T() const thread { return x; } operator T() const constant { return x; }", true),
            Some(Verdict::Same)
        );
        assert_eq!(
            second(
                "T operator()(T a) device { return a; } T operator()(T a) const thread { return a; }",
                true
            ),
            None
        );
        let signs = "T operator-() device { return a; } T operator-() const thread { return b; }";
        assert_eq!(second(signs, true), None);
        assert_eq!(
            second("struct P<thread T*> { int x; } struct P<device T*> { int x; }", false),
            Some(Verdict::Same)
        );
        assert_eq!(second("struct P<device T*> { int x; } struct P<constant T*> { int x; }", false), None);
    }
}
