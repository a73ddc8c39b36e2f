//! Selects explicit instantiations of kernel templates that together have all template arguments.
//!
//! A check whose findings hardly depend on combinations of template arguments needs few of the instantiations of a source: an
//! instantiation is left out if each of its arguments occurs, at the same position of the same template, in one that is kept. For a
//! source that instantiates a template for all combinations of types and sizes, this is linear instead of exponential.

use std::collections::HashSet;

use crate::clang::shards::instantiations;
use crate::rewrite::glue::INSTANTIATE;

/// The text, of the same length, with instantiations that are left out made declarations.
pub(crate) fn cover(text: &str) -> String {
    let mut seen = HashSet::new();
    let mut out = text.to_owned();
    for at in instantiations(text) {
        let declaration = &text[at + INSTANTIATE.len()..];
        let declaration = &declaration[..declaration.find(';').unwrap_or(declaration.len())];
        let is_kept = match name_and_arguments(declaration) {
            None => true,
            // All are inserted, so not `any`.
            Some((name, args)) => {
                let new = args.into_iter().enumerate().filter(|(i, arg)| seen.insert((name, *i, *arg)));
                new.count() > 0
            }
        };
        let word = if is_kept { "template" } else { "extern template" };
        out.replace_range(at..at + INSTANTIATE.len(), &format!("{word:0$}", INSTANTIATE.len()));
    }
    out
}

/// The template and its arguments: the first template-id outside of brackets that parameters or the end follow.
fn name_and_arguments(declaration: &str) -> Option<(&str, Vec<&str>)> {
    let mut depth = 0_usize;
    let mut from = 0;
    while let Some(at) = declaration[from..].find(['(', ')', '[', ']', '<']).map(|at| from + at) {
        from = at + 1;
        match declaration.as_bytes()[at] {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            _ if depth > 0 => {}
            _ => {
                let (args, end) = arguments(declaration, at + 1)?;
                let behind = declaration[end..].trim_start();
                if behind.is_empty() || behind.starts_with('(') {
                    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
                    let before = declaration[..at].trim_end();
                    return Some((&before[before.trim_end_matches(is_name).len()..], args));
                }
                from = end;
            }
        }
    }
    None
}

/// The arguments of a list that begins at `start`, and where it ends.
fn arguments(text: &str, start: usize) -> Option<(Vec<&str>, usize)> {
    let (mut args, mut from) = (Vec::new(), start);
    let (mut angles, mut brackets) = (0_usize, 0_usize);
    for (at, byte) in text.bytes().enumerate().skip(start) {
        match byte {
            b'(' | b'[' | b'{' => brackets += 1,
            b')' | b']' | b'}' => brackets = brackets.checked_sub(1)?,
            _ if brackets > 0 => {}
            b'<' => angles += 1,
            b'>' if angles > 0 => angles -= 1,
            b',' if angles == 0 => {
                args.push(text[from..at].trim());
                from = at + 1;
            }
            b'>' => {
                args.push(text[from..at].trim());
                return Some((args, at + 1));
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rewrite::glue::ALL_KERNELS;

    #[test]
    fn templates_and_arguments_are_read() {
        let read =
            |text| name_and_arguments(text).map(|(name, args)| format!("{name}: {}", args.join(" | ")));
        for (declaration, expected) in [
            (" void f<int>( int*)", "f: int"),
            (" decltype(a::f<int, 2>) a::f<int, 2>", "a::f: int | 2"),
            (" f_t f < vec<T, (1 > 2)> , g<1>(), &h >(int, x<3>)", "f: vec<T, (1 > 2)> | g<1>() | &h"),
            (" vec<int, 4> f<>(vec<int, 4>*)", "f: "),
        ] {
            assert_eq!(read(declaration).as_deref(), Some(expected));
        }
        for none in ["", " void f(int)", " void f<int", " struct S<int> x", " void f<(>)"] {
            assert_eq!(read(none), None, "{none}");
        }
    }

    #[test]
    fn each_argument_is_kept_once() {
        let (types, sizes) = (["half", "float", "bfloat"], [16, 32, 64, 128]);
        let all =
            types.iter().flat_map(|ty| sizes.map(|size| format!("{INSTANTIATE} f_t f<{ty}, {size}>;\n")));
        let other = format!("{INSTANTIATE} f_t g<half, 16>;\n{INSTANTIATE} odd;\n{INSTANTIATE} odd;\n");
        let text = format!("{ALL_KERNELS}{}{other}", all.collect::<String>());
        let covered = cover(&text);
        assert_eq!(covered.len(), text.len());
        assert!(covered.starts_with(ALL_KERNELS));
        let kept = |line: &&str| line.starts_with("template");
        let kept: Vec<&str> = covered
            .lines()
            .filter(kept)
            .filter_map(|line| line.split_once(" f_t ").map(|(_, f)| f))
            .collect();
        let expected = [
            "f<half, 16>;",
            "f<half, 32>;",
            "f<half, 64>;",
            "f<half, 128>;",
            "f<float, 16>;",
            "f<bfloat, 16>;",
            "g<half, 16>;",
        ];
        assert_eq!(kept, expected);
        assert_eq!(covered.matches("extern template").count(), 12 - 6);
        assert_eq!(
            covered.lines().filter(|line| line.starts_with("template") && line.ends_with(" odd;")).count(),
            2
        );
    }
}
