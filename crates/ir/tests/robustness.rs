//! Damaged text is refused or accepted, never a panic; and what is accepted can be verified, and prints to
//! text that parses to the same.

mod data;

use elinvar_ir::{Module, verify};

fn survive(text: &str) {
    if let Ok(module) = Module::parse(text) {
        let _ = verify(&module);
        let printed = module.to_string();
        match Module::parse(&printed) {
            Ok(again) => assert_eq!(again.to_string(), printed, "{text}"),
            Err(error) => panic!("what was printed does not parse: {error}\n{printed}"),
        }
        for inst in module.functions.iter().flat_map(|f| &f.blocks).flat_map(|b| &b.insts) {
            let _ = module.location(&inst.metadata);
        }
    }
}

#[test]
fn truncated_files() {
    for (_, text) in data::FILES {
        for end in (0..text.len()).step_by(131).filter(|end| text.is_char_boundary(*end)) {
            survive(&text[..end]);
        }
    }
}

#[test]
fn mutated_files() {
    let pieces = ["", "}", "(", "\"", "%0", "%9999", "@f", "!7", "-1", "i1", "<", ",", "label %x", "\u{e9}"];
    let mut state = 12345u64;
    for (_, text) in data::FILES {
        for _ in 0..150 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let at = (state >> 33) as usize % text.len();
            let end = (at + (state >> 20) as usize % 6).min(text.len());
            if text.is_char_boundary(at) && text.is_char_boundary(end) {
                let piece = pieces[(state >> 50) as usize % pieces.len()];
                survive(&format!("{}{piece}{}", &text[..at], &text[end..]));
            }
        }
    }
}

/// Fuzzing has found these.
#[test]
fn found_by_fuzzing() {
    for text in [
        "define void @f(double nofpclass(; \n%t = type {} nan) %1) {\n  ret void\n}\n",
        "@a = global i32 0\n!1 = !DILocation(scope: !1,\n%t = type {}\n)\n",
    ] {
        survive(text);
    }
}
