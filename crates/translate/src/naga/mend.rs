//! Corrections of the MSL that naga writes.

/// The text with each kernel's own index of the thread where threadgroup memory is zeroed. naga 30 takes the name of the member where the index
/// is one of a struct, which is not the parameter's if that name is taken.
pub(super) fn initialization(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    // Of the kernel whose parameters are read: the index's name, and whether there is memory to be zeroed.
    let (mut index, mut has_memory, mut is_first) = (None, false, false);
    for row in text.lines() {
        let parameter = row.trim_start_matches([' ', ',']);
        if row.contains("kernel void ") {
            (index, has_memory) = (None, false);
        } else if let Some(declared) = parameter.strip_suffix(" [[thread_index_in_threadgroup]]") {
            index = declared.strip_prefix("uint ");
        } else if parameter.starts_with("threadgroup ") {
            has_memory = true;
        }
        match index {
            Some(name) if is_first && row.starts_with("    if (") && row.ends_with(" == 0u) {") => {
                out.push_str(&format!("    if ({name} == 0u) {{"));
            }
            _ => out.push_str(row),
        }
        out.push('\n');
        is_first = row == ") {" && std::mem::take(&mut has_memory);
    }
    out
}

/// The text without warnings of accesses behind the first element: naga declares arrays without a length with one.
pub(super) fn warnings(text: &str) -> String {
    match text.split_once("#include ") {
        Some((before, rest)) => {
            format!("{before}#pragma clang diagnostic ignored \"-Warray-bounds\"\n#include {rest}")
        }
        None => text.to_owned(),
    }
}
