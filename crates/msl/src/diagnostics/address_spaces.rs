//! Address space checks: warnings about pointer conversions that are errors in Metal. Elinvar has one address space and needs no
//! such checks.
//!
//! The text is rewritten once more with the spaces as clang's `address_space` attributes, and clang parses it without generating
//! code. Elinvar's headers have no address spaces, so that most errors are spurious; only those in the user's text about two
//! pointers with different spaces are reported. There are false negatives, but no false positives.

use crate::diagnostics::ClangDiagnostic;
use elinvar_driver::Severity;

/// Definitions before the text; clang's diagnostics show these names.
pub(crate) const DEFINITIONS: &str = "\
#define ELINVAR_device __attribute__((address_space(1)))
#define ELINVAR_constant __attribute__((address_space(2)))
#define ELINVAR_threadgroup __attribute__((address_space(3)))
#define ELINVAR_POINTER(space, qualifier) struct elinvar_pointer_##space { \
    elinvar_pointer_##space(const volatile qualifier void*); elinvar_pointer_##space(unsigned long); \
    template <class T> operator T*() const; };
ELINVAR_POINTER(device, ELINVAR_device)
ELINVAR_POINTER(constant, ELINVAR_constant)
ELINVAR_POINTER(threadgroup, ELINVAR_threadgroup)
ELINVAR_POINTER(thread, )
#undef ELINVAR_POINTER
";

const NAMES: [&str; 3] = ["ELINVAR_device", "ELINVAR_constant", "ELINVAR_threadgroup"];

/// Beginnings of the diagnostics about conversions between two types.
const CONVERSIONS: [&str; 12] = [
    "cannot initialize a variable of type",
    "cannot initialize a parameter of type",
    "cannot initialize a member subobject of type",
    "cannot initialize an array element of type",
    "cannot initialize return object of type",
    "assigning to",
    "binding reference of type",
    "static_cast from",
    "reinterpret_cast from",
    "C-style cast from",
    "comparison of distinct pointer types",
    "incompatible operand types",
];

/// Select the diagnostics about address spaces, as warnings. `own` tells which are in the user's text.
pub(crate) fn mismatches(
    messages: Vec<ClangDiagnostic>,
    own: impl Fn(&ClangDiagnostic) -> bool,
) -> Vec<ClangDiagnostic> {
    let mut found = Vec::new();
    let mut rest = messages.into_iter().peekable();
    while let Some(message) = rest.next() {
        let mut notes = Vec::new();
        while let Some(note) = rest.next_if(|m| m.severity == Severity::Note) {
            notes.push(note);
        }
        if message.severity != Severity::Error || !own(&message) {
            continue;
        }
        let what = if CONVERSIONS.iter().any(|begin| message.text.starts_with(begin)) {
            differ(&message.text).then(|| message.text.clone())
        } else if message.text.starts_with("no matching conversion for C-style cast from") {
            cast(&message.text)
        } else if message.text.starts_with("no matching function for call to") {
            call(&notes, &own).map(|why| format!("{}: {why}", message.text))
        } else {
            None
        };
        let Some(what) = what else { continue };
        let text = format!(
            "{}; the address spaces differ, which is an error in Metal",
            what.replace("ELINVAR_", "")
        );
        found.push(ClangDiagnostic { severity: Severity::Warning, text, ..message });
        // The instantiation that it is about.
        found.extend(notes.into_iter().filter(|note| note.text.starts_with("in instantiation of")));
    }
    found
}

/// The type of the classes through which casts to pointers go.
const POINTER: &str = "elinvar_pointer_";

/// A cast from a pointer with an address space to one with another.
fn cast(text: &str) -> Option<String> {
    let types = types(text);
    let [from, to, ..] = &types[..] else { return None };
    let to = to.strip_prefix(POINTER)?;
    let of = levels(from)?.last().copied().flatten()?.strip_prefix("ELINVAR_")?;
    (of != to).then(|| format!("C-style cast from '{from}' to a pointer to '{to}' memory"))
}

/// Why no candidate matches a call, if that is an argument's address space for each candidate with the right number of
/// parameters.
fn call(notes: &[ClangDiagnostic], own: &impl Fn(&ClangDiagnostic) -> bool) -> Option<String> {
    // Not all candidates are shown.
    if notes.iter().any(|note| note.text.starts_with("remaining ")) {
        return None;
    }
    let mut why = None;
    let candidates = notes.iter().filter(|note| note.text.starts_with("candidate"));
    for note in candidates {
        let reason = note.text.split_once(": ").map_or("", |(_, reason)| reason);
        if reason.starts_with("requires ") {
            continue;
        }
        let conversion = reason.starts_with("no known conversion from") || reason.starts_with("deduced type");
        if !own(note) || !conversion || !differ(reason) {
            return None;
        }
        why.get_or_insert_with(|| reason.to_owned());
    }
    why
}

/// Whether the first two types of a diagnostic point into different spaces.
fn differ(text: &str) -> bool {
    let types = types(text);
    let [a, b, ..] = &types[..] else { return false };
    // A string literal is in the constant space in Metal, and in none here.
    if [a, b].iter().any(|of| of.starts_with("const char[")) {
        return false;
    }
    match (levels(a), levels(b)) {
        (Some(a), Some(b)) => a.len() == b.len() && a != b,
        // A reference to const may bind to a temporary copy.
        (None, None) => {
            text.starts_with("binding reference") && space(a) != space(b) && !a.starts_with("const ")
        }
        _ => false,
    }
}

/// The quoted types of a diagnostic, desugared.
fn types(text: &str) -> Vec<String> {
    let mut types = Vec::new();
    let mut rest = text;
    while let Some((_, from)) = rest.split_once('\'') {
        let Some((mut ty, behind)) = from.split_once('\'') else { break };
        rest = behind;
        if let Some((aka, behind)) = rest.strip_prefix(" (aka '").and_then(|from| from.split_once("')")) {
            (ty, rest) = (aka, behind);
        }
        let mut ty = ty.to_owned();
        for (i, name) in NAMES.iter().enumerate() {
            ty = ty.replace(&format!("__attribute__((address_space({})))", i + 1), name);
        }
        types.push(ty);
    }
    types
}

/// The address space of each pointee, innermost first; `None` for other types.
fn levels(ty: &str) -> Option<Vec<Option<&'static str>>> {
    if ty.contains("(*") || ty.contains("lambda") {
        return None;
    }
    let (pointee, array) = ty.split_once('[').map_or((ty, false), |(pointee, _)| (pointee, true));
    let mut levels: Vec<_> = pointee.split('*').map(space).collect();
    if !array {
        levels.pop();
    }
    (!levels.is_empty()).then_some(levels)
}

fn space(segment: &str) -> Option<&'static str> {
    NAMES.into_iter().find(|name| segment.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_of_types() {
        let device = Some("ELINVAR_device");
        assert_eq!(levels("ELINVAR_device float *"), Some(vec![device]));
        assert_eq!(levels("float *const ELINVAR_device *"), Some(vec![None, device]));
        assert_eq!(levels("const ELINVAR_device float[4]"), Some(vec![device]));
        assert_eq!((levels("float"), levels("void (*)(float *)")), (None, None));
        let aka = "'buffer_t' (aka '__attribute__((address_space(1))) float *') and 'float *'";
        assert_eq!(types(aka), ["ELINVAR_device float *", "float *"]);
    }

    #[test]
    fn what_counts() {
        let yes = [
            "cannot initialize a variable of type 'ELINVAR_device float *' with an lvalue of type 'ELINVAR_threadgroup float[64]'",
            "binding reference of type 'ELINVAR_device float' to value of type 'ELINVAR_threadgroup float' changes address space",
        ];
        let no = [
            "cannot initialize a variable of type 'float' with an lvalue of type 'ELINVAR_device S'",
            "binding reference of type 'const float' to value of type 'ELINVAR_device float' changes address space",
            "cannot initialize a variable of type 'int *' with an lvalue of type 'float *'",
        ];
        assert_eq!((yes.map(differ), no.map(differ)), ([true; 2], [false; 3]));
    }
}
