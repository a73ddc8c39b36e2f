//! Joins the text of LLVM modules, so that one run of clang serves many kernels. Only the names of entries are changed.

use std::collections::HashSet;

use elinvar_msl::items::{items, symbol};
use elinvar_spmd::SYMBOL;

/// Joins modules that each define [`SYMBOL`], and returns the names of these functions in the result. Definitions with the same name must
/// be identical; of several declarations, the first is used.
pub(crate) fn together<'a>(texts: impl Iterator<Item = &'a str>) -> (String, Vec<String>) {
    let (mut all, mut symbols, mut seen) = (String::new(), Vec::new(), HashSet::new());
    for text in texts {
        for item in items(text) {
            if item.starts_with("define") && symbol(item) == Some(&format!("@{SYMBOL}")) {
                let name = format!("{SYMBOL}_{}", symbols.len());
                all.push_str(&item.replacen(SYMBOL, &name, 1));
                symbols.push(name);
            } else if seen.insert(symbol(item).unwrap_or(item)) {
                all.push_str(item);
            }
        }
    }
    (all, symbols)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_modules_share_is_there_once() {
        let text = |n: u32| {
            format!(
                "declare void @f()\ndefine i32 @{SYMBOL}(i32 %x) {{\n  call void @f()\n  ret i32 {n}\n}}\n\
                 @t = internal constant i32 1\n"
            )
        };
        let (all, symbols) = together([text(1), text(2)].iter().map(String::as_str));
        assert_eq!(symbols, [format!("{SYMBOL}_0"), format!("{SYMBOL}_1")]);
        assert_eq!(all.matches("declare").count(), 1);
        assert_eq!(all.matches("@t =").count(), 1);
        assert!(all.contains(&format!("@{SYMBOL}_1(i32 %x) {{\n  call void @f()\n  ret i32 2\n}}\n")));
    }
}
