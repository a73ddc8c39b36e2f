//! Names of the user's source in mangled names.

/// The last name of a mangled one: `shared` for `_ZZL7partialPjRKjjjE6shared`, `deep` for `_ZL4deepj`.
/// Anything that is not mangled is its own name.
pub(crate) fn source_name(mangled: &str) -> String {
    let bytes = mangled.as_bytes();
    let mut name = mangled;
    let mut at = if mangled.starts_with("_Z") { 2 } else { bytes.len() };
    while at < bytes.len() {
        let digits = bytes[at..].iter().take_while(|b| b.is_ascii_digit()).count();
        // The value of a template argument, as in `Li16E`, is no length.
        let is_value = at >= 2 && bytes[at - 2] == b'L' && bytes[at - 1].is_ascii_lowercase();
        let length: usize = mangled.get(at..at + digits).and_then(|n| n.parse().ok()).unwrap_or(0);
        match mangled.get(at + digits..at + digits + length) {
            Some(text) if length > 0 && !is_value => {
                name = text;
                at += digits + length;
            }
            _ => at += digits.max(1),
        }
    }
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_functions_and_local_variables() {
        assert_eq!(source_name("_ZZL7partialPjRKjjjE6shared"), "shared");
        assert_eq!(source_name("_ZZL7partialPjRKjjjE6shared_0"), "shared");
        assert_eq!(source_name("_ZL4deepj"), "deep");
        assert_eq!(source_name("_ZL6k2b1x_ILi2ELj16EEvPf"), "k2b1x_");
        assert_eq!(source_name("tile4x2"), "tile4x2");
        assert_eq!(source_name("_Zé3"), "_Zé3");
    }
}
