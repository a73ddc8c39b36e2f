//! Allow-lists of what a source may use: Metal Shading Language, not C++ for the host.
//!
//! clang has thousands of builtins, attributes, pragmas and keywords that reach the processor, the process or the linker. Each
//! kind has an allow-list here, checked over the tokens of the preprocessed text, so that errors have the user's lines.
//! Elinvar's headers are not part of that text; what their macros expand to is on the lists.
//!
//! `elinvar-spmd` checks the IR as well, and rejects calls that it does not know.

use crate::lex::TokenKind;
use crate::lex::token_buffer::TokenBuffer;
use crate::rewrite::intrinsics;

/// Prefixes that clang reserves for builtins.
const RESERVED_PREFIXES: [&str; 11] = [
    "__builtin_",
    "__atomic_",
    "__c11_atomic_",
    "__scoped_atomic_",
    "__sync_",
    "__nvvm_",
    "__hlsl_",
    "__opencl_",
    "__hip_",
    "_Interlocked",
    "__annotation",
];

/// Allowed builtins, without `__builtin_`. Names may have a suffix of [`BUILTIN_SUFFIXES`].
const ALLOWED_BUILTINS: [&str; 60] = [
    "abs",
    "add_overflow",
    "addressof",
    "assume",
    "bit_cast",
    "bitreverse",
    "bswap",
    "ceil",
    "choose_expr",
    "clrsb",
    "clz",
    "constant_p",
    "convertvector",
    "copysign",
    "cos",
    "ctz",
    "exp",
    "exp2",
    "expect",
    "expect_with_probability",
    "fabs",
    "ffs",
    "floor",
    "fma",
    "fmax",
    "fmin",
    "fmod",
    "huge_val",
    "inf",
    "is_constant_evaluated",
    "isfinite",
    "isinf",
    "isnan",
    "isnormal",
    "launder",
    "log",
    "log10",
    "log2",
    "memcpy",
    "memmove",
    "memset",
    "mul_overflow",
    "nan",
    "nans",
    "offsetof",
    "parity",
    "popcount",
    "pow",
    "rint",
    "rotateleft",
    "rotateright",
    "round",
    "roundeven",
    "shufflevector",
    "signbit",
    "sin",
    "sqrt",
    "sub_overflow",
    "trunc",
    "unreachable",
];

/// Allowed families of builtins, by prefix.
const ALLOWED_BUILTIN_FAMILIES: [&str; 2] = ["elementwise_", "reduce_"];

/// Suffixes of builtins: types and widths.
const BUILTIN_SUFFIXES: [&str; 12] = ["", "f", "f16", "l", "ll", "g", "s", "8", "16", "32", "64", "_sat"];

/// Keywords that are not MSL, with the reason.
const DISALLOWED_KEYWORDS: [(&str, &str); 16] = [
    ("asm", ASSEMBLY),
    ("__asm", ASSEMBLY),
    ("__asm__", ASSEMBLY),
    ("thread_local", THREAD_LOCAL),
    ("_Thread_local", THREAD_LOCAL),
    ("__thread", THREAD_LOCAL),
    ("__try", EXCEPTIONS),
    ("__except", EXCEPTIONS),
    ("__finally", EXCEPTIONS),
    ("__leave", EXCEPTIONS),
    ("try", EXCEPTIONS),
    ("catch", EXCEPTIONS),
    ("throw", EXCEPTIONS),
    ("typeid", "MSL has no run-time type information"),
    ("dynamic_cast", "MSL has no run-time type information"),
    ("__debugbreak", BUILTIN),
];

const ASSEMBLY: &str = "MSL has no inline assembly";
const THREAD_LOCAL: &str = "MSL has no thread-local variables";
const EXCEPTIONS: &str = "MSL has no exceptions";
const BUILTIN: &str = "this compiler builtin is not part of MSL";

/// Prefixes of Elinvar's own identifiers.
const ELINVAR_PREFIXES: [&str; 2] = ["__elinvar", "elinvar_"];

/// Allowed attributes of `__attribute__` and `__declspec`, without underscores.
const ALLOWED_ATTRIBUTES: [&str; 25] = [
    "align",
    "aligned",
    "always_inline",
    "const",
    "convergent",
    "deprecated",
    "diagnose_if",
    "enable_if",
    "ext_vector_type",
    "fallthrough",
    "flatten",
    "forceinline",
    "hot",
    "cold",
    "likely",
    "maybe_unused",
    "noduplicate",
    "nodebug",
    "noinline",
    "nothrow",
    "overloadable",
    "packed",
    "pure",
    "unused",
    "warn_unused_result",
];

/// Pragmas passed on to clang, by their first words. Unknown pragmas are ignored with a warning, as compilers do.
const ALLOWED_PRAGMAS: [&str; 19] = [
    "region",
    "endregion",
    "push_macro",
    "pop_macro",
    "GCC system_header",
    "unroll",
    "nounroll",
    "once",
    "mark",
    "message",
    "pack",
    "METAL",
    "clang loop",
    "clang diagnostic",
    "clang fp",
    "clang system_header",
    "GCC diagnostic",
    "GCC unroll",
    "STDC FP_CONTRACT",
];

/// Pragmas that change code generation or symbols.
const DISALLOWED_PRAGMAS: [&str; 12] = [
    "clang attribute",
    "clang section",
    "clang optimize",
    "clang force_cuda_host_device",
    "GCC visibility",
    "GCC target",
    "GCC optimize",
    "STDC FENV_ACCESS",
    "weak",
    "redefine_extname",
    "init_seg",
    "omp",
];

/// What to do with a pragma.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pragma {
    /// clang sees it.
    Pass,
    /// It is removed.
    Ignore,
    Reject,
}

/// Classify a directive.
pub(crate) fn pragma(line: &str) -> Pragma {
    let Some(rest) = line.trim_start_matches('#').trim_start().strip_prefix("pragma") else {
        return Pragma::Pass;
    };
    let rest: Vec<&str> =
        rest.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|w| !w.is_empty()).collect();
    let begins = |known: &&str| {
        known.split(' ').zip(rest.iter().map(Some).chain(std::iter::repeat(None))).all(|(a, b)| Some(&a) == b)
    };
    if DISALLOWED_PRAGMAS.iter().any(&begins) {
        Pragma::Reject
    } else if ALLOWED_PRAGMAS.iter().any(&begins) {
        Pragma::Pass
    } else {
        Pragma::Ignore
    }
}

/// Find what is not allowed: offset and message.
pub(crate) fn disallowed(tokens: &TokenBuffer) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for i in 0..tokens.len() {
        let message = match tokens.kind(i) {
            Some(TokenKind::Identifier) if intrinsics::is_label(tokens, i) => None,
            Some(TokenKind::Identifier) => word(tokens, i),
            Some(TokenKind::Directive) if pragma(tokens.spelling(i)) == Pragma::Reject => {
                Some("this pragma changes code generation and is not part of MSL".to_owned())
            }
            Some(TokenKind::Punctuator) => punctuation(tokens, i).map(str::to_owned),
            _ => None,
        };
        found.extend(message.map(|message| (tokens.start(i), message)));
        if matches!(tokens.spelling(i), "__attribute__" | "__attribute" | "__declspec" | "_declspec") {
            found.extend(attributes(tokens, i));
        }
    }
    found
}

/// Find `const_cast`s, for warnings. clang warns of C-style casts itself.
pub(crate) fn const_casts(tokens: &TokenBuffer) -> Vec<(usize, String)> {
    let casts = (0..tokens.len()).filter(|&i| tokens.spelling(i) == "const_cast");
    let message = "`const_cast`: what is written through the result counts as written by the kernel";
    casts.map(|i| (tokens.start(i), message.to_owned())).collect()
}

fn word(tokens: &TokenBuffer, i: usize) -> Option<String> {
    let word = tokens.spelling(i);
    if let Some((_, why)) = DISALLOWED_KEYWORDS.iter().find(|(known, _)| *known == word) {
        return Some(format!("`{word}`: {why}"));
    }
    if ELINVAR_PREFIXES.iter().any(|prefix| word.starts_with(prefix)) {
        return Some(format!("`{word}`: identifiers that begin with `__elinvar` or `elinvar_` are reserved"));
    }
    let reserved = RESERVED_PREFIXES.iter().any(|prefix| word.starts_with(prefix));
    (reserved && !is_allowed_builtin(word)).then(|| format!("`{word}`: {BUILTIN}"))
}

/// Whether a builtin only computes a value, or accesses memory as an assignment does.
fn is_allowed_builtin(word: &str) -> bool {
    let Some(name) = word.strip_prefix("__builtin_") else { return false };
    if ALLOWED_BUILTIN_FAMILIES.iter().any(|family| name.starts_with(family)) {
        return true;
    }
    ALLOWED_BUILTINS
        .iter()
        .any(|known| name.strip_prefix(known).is_some_and(|rest| BUILTIN_SUFFIXES.contains(&rest)))
}

/// Digraphs, and attribute lists that the rewriter would not recognize and clang would.
fn punctuation(tokens: &TokenBuffer, i: usize) -> Option<&'static str> {
    let adjacent = tokens.start(i + 1) == tokens.start(i) + tokens.spelling(i).len();
    match (tokens.spelling(i), tokens.spelling(i + 1)) {
        ("<", ":" | "%") | ("%", ":" | ">") | (":", ">") if adjacent => Some("MSL has no digraphs"),
        ("[", _) if opens_attribute_list(tokens, i) && tokens.after_attribute_list(i).is_none() => Some(
            "write the brackets that open an attribute list `[[…]]` on one line, and those that close it",
        ),
        _ => None,
    }
}

/// Whether the bracket at `i` and the next one open an attribute list for clang, which ignores line markers between them.
fn opens_attribute_list(tokens: &TokenBuffer, i: usize) -> bool {
    let next = (i + 1..).find(|&at| tokens.kind(at) != Some(TokenKind::Directive));
    next.is_some_and(|next| tokens.spelling(next) == "[")
}

/// Attributes that are not allowed in the list after token `i`.
fn attributes(tokens: &TokenBuffer, i: usize) -> Vec<(usize, String)> {
    let Some(behind) = tokens.after_group(i + 1) else {
        return vec![(tokens.start(i), format!("`{}` without a list", tokens.spelling(i)))];
    };
    let mut found = Vec::new();
    let mut at = i + 2;
    while at < behind - 1 {
        if !tokens.is_identifier(at) {
            at += 1;
            continue;
        }
        let mut name = at;
        while tokens.spelling(name + 1) == "::" && tokens.is_identifier(name + 2) {
            name += 2;
        }
        let plain = tokens.spelling(name).trim_start_matches("__").trim_end_matches("__");
        if !ALLOWED_ATTRIBUTES.contains(&plain) {
            let message = format!("attribute `{}` is not part of MSL", tokens.spelling(name));
            found.push((tokens.start(name), message));
        }
        // The argument is an expression, whose tokens are checked as all others.
        at = tokens.after_group(name + 1).filter(|_| tokens.spelling(name + 1) == "(").unwrap_or(name + 1);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(text: &str) -> Vec<String> {
        disallowed(&TokenBuffer::new(text))
            .into_iter()
            .map(|(at, message)| format!("{at}: {message}"))
            .collect()
    }

    #[test]
    fn casts_that_take_const_away_are_worth_a_look() {
        let text = "const_cast<device uint*>(a)[i] = *const_cast<thread int*>(&b); const_casts";
        let found: Vec<usize> = const_casts(&TokenBuffer::new(text)).into_iter().map(|(at, _)| at).collect();
        assert_eq!(found, text.match_indices("const_cast<").map(|(at, _)| at).collect::<Vec<_>>());
    }

    #[test]
    fn builtins_that_compute_and_others() {
        for name in [
            "inff",
            "nanf",
            "offsetof",
            "popcount",
            "popcountll",
            "clzg",
            "ctz",
            "bswap32",
            "bitreverse64",
            "fabsf",
            "sqrtf16",
            "elementwise_add_sat",
            "reduce_max",
            "unreachable",
            "expect",
            "assume",
            "memcpy",
        ] {
            assert_eq!(messages(&format!("x = __builtin_{name}(a);")), [""; 0], "{name}");
        }
        for name in [
            "ia32_maskmovdqu",
            "ia32_fxsave",
            "ia32_clflush",
            "ia32_writeeflags_u64",
            "ia32_ldmxcsr",
            "longjmp",
            "setjmp",
            "trap",
            "debugtrap",
            "verbose_trap",
            "alloca",
            "alloca_with_align",
            "return_address",
            "frame_address",
            "va_start",
            "va_list",
            "extract_return_addr",
            "readcyclecounter",
            "readsteadycounter",
            "coro_resume",
            "nontemporal_store",
            "__clear_cache",
            "call_with_static_chain",
            "prefetch",
            "printf",
            "eh_return",
            "unwind_init",
            "init_dwarf_reg_size_table",
            "set_flt_rounds",
            "stdarg_start",
            "malloc",
            "operator_new",
            "thread_pointer",
            "dump_struct",
            "os_log_format",
            "preserve_access_index",
            "memcpy_inline",
            "nan_trap",
            "sqrt_trap",
        ] {
            let text = format!("x = ::__builtin_{name}(a);");
            assert_eq!(messages(&text), [format!("6: `__builtin_{name}`: {BUILTIN}")]);
        }
        for name in [
            "__sync_synchronize",
            "__atomic_load_n",
            "__c11_atomic_store",
            "__nvvm_membar_sys",
            "__debugbreak",
        ] {
            assert_eq!(messages(&format!("{name}();")).len(), 1, "{name}");
        }
        assert_eq!(messages("x.__metal_thing(__is_same(int, int), __my_own, __FUNCTION__)"), [""; 0]);
    }

    #[test]
    fn words_attributes_and_spellings() {
        for text in [
            "asm(\"hlt\")",
            "void f() __asm__(\"g\");",
            "void f() __asm(\"air.fence\");",
            "thread_local int a;",
            "static __thread int a;",
            "void __elinvar_entry();",
            "extern \"C\" void elinvar_record_fault();",
            "__attribute__((constructor)) void f();",
            "__attribute__((noinline, __section__(\".x\"))) void f();",
            "__attribute__((aligned(16))) __attribute((__weak__)) int a;",
            "__attribute__((gnu::alias(\"f\"))) void g();",
            "__attribute__((always_inline::alias(\"f\"))) void g();",
            "__attribute__((cleanup(f))) int a;",
            "__attribute__((address_space(257))) int* a;",
            "__attribute__((target(\"avx512f\"))) void f();",
            "__declspec(naked) void f();",
            "int a<:4:>;",
            "[\n# 30 \"a.metal\"\n[gnu::constructor]] void f();",
            "[[gnu::constructor]\n# 30 \"a.metal\"\n] void f();",
            "#pragma clang attribute pop",
            "#pragma redefine_extname f g",
            "#  pragma weak f",
        ] {
            assert!(!messages(text).is_empty(), "{text}");
        }
        for text in [
            "inline __attribute__((__always_inline__)) void f();",
            "__attribute__((noinline, aligned(sizeof(int)))) void f();",
            "__attribute__((gnu::noinline, clang::always_inline)) void f();",
            "typedef float v __attribute__((ext_vector_type(4)));",
            "struct __attribute__((packed)) A { int a[[0]]; };",
            "void f(device int* a[ [buffer(0)] ]);",
            "f<::a>(b ? c :d)[a[0]];",
            "#pragma unroll",
            "#pragma mark - asm",
            "# 12 \"a.metal\" 2",
        ] {
            assert_eq!(messages(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn pragmas() {
        for kept in [
            "#pragma unroll 4",
            "#pragma unroll(4)",
            "# pragma clang loop unroll(full)",
            "#pragma METAL fp math_mode(safe)",
        ] {
            assert_eq!(pragma(kept), Pragma::Pass, "{kept}");
        }
        assert_eq!(
            pragma("#pragma clang attribute push(__attribute__((weak)), apply_to = function)"),
            Pragma::Reject
        );
        assert_eq!(pragma("#pragma vectorize(enable)"), Pragma::Ignore);
        assert_eq!(pragma("#pragma comment(linker, \"/x\")"), Pragma::Ignore);
        assert_eq!(pragma("# 3 \"pragma weak\""), Pragma::Pass);
    }
}
