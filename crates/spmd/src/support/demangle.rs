//! Source names of mangled symbols (Itanium C++ ABI).

/// The name that a mangled one has in the source: `deep` for `_ZL4deepj`, `shared` for `_ZZL7partialPjRKjjjE6shared`. Anything that is
/// not mangled is its own name.
pub(crate) fn source_name(mangled: &str) -> String {
    let encoding = mangled.strip_prefix("_Z").unwrap_or_default();
    let found = match encoding.strip_prefix('Z') {
        // A local entity follows its function, and has no parameters.
        Some(_) => names(encoding).last(),
        // The parameters follow the function's name, which is `N…E` or first.
        None if encoding.starts_with('N') => names(qualified(encoding)).last(),
        None => names(encoding).next(),
    };
    found.unwrap_or(mangled).to_owned()
}

/// A nested name, up to its end or to template arguments.
fn qualified(encoding: &str) -> &str {
    let bytes = encoding.as_bytes();
    let mut at = 1;
    while at < bytes.len() && !matches!(bytes[at], b'E' | b'I') {
        at += length(encoding, at).map_or(1, |(digits, length)| digits + length);
    }
    &encoding[..at.min(bytes.len())]
}

/// A length prefix and its value.
fn length(text: &str, at: usize) -> Option<(usize, usize)> {
    let digits = text.as_bytes()[at..].iter().take_while(|b| b.is_ascii_digit()).count();
    let length: usize = text.get(at..at + digits)?.parse().ok()?;
    text.get(at + digits..at + digits + length).filter(|name| !name.is_empty())?;
    Some((digits, length))
}

/// The sequence of length-prefixed names.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() {
            // The value of a template argument, as in `Li16E`, is not a length.
            let is_value = at >= 2 && bytes[at - 2] == b'L' && bytes[at - 1].is_ascii_lowercase();
            let digits = bytes[at..].iter().take_while(|b| b.is_ascii_digit()).count();
            match length(text, at).filter(|_| !is_value) {
                Some((digits, length)) => {
                    let begin = at + digits;
                    at = begin + length;
                    return Some(&text[begin..at]);
                }
                None => at += digits.max(1),
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_functions_and_local_variables() {
        assert_eq!(source_name("_ZZL7partialPjRKjjjE6shared"), "shared");
        assert_eq!(source_name("_ZZL7partialPjRKjjjE6shared_0"), "shared");
        assert_eq!(source_name("_ZL4deepj"), "deep");
        assert_eq!(source_name("_ZL7h0k1177PiS_6Sk1177il"), "h0k1177");
        assert_eq!(source_name("_ZN2ns4Tile4loadEP5Tiles"), "load");
        assert_eq!(source_name("_ZN2ns5applyI4TileEEvT_"), "apply");
        assert_eq!(source_name("_ZL6k2b1x_ILi2ELj16EEvPf"), "k2b1x_");
        assert_eq!(source_name("tile4x2"), "tile4x2");
        assert_eq!(source_name("_Zé3"), "_Zé3");
    }
}
