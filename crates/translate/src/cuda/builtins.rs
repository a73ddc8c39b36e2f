//! Functions of CUDA's headers that are not written in C++ in ours: each as an expression of MSL.

use super::ast::Node;
use super::render::Renderer;
use super::types::{Scalar, Space};

/// What a function becomes. `{0}` is the first argument; arguments are converted to the types that the header declares.
const TEMPLATES: &[(&str, &str)] = &[
    ("__syncthreads", "threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup)"),
    ("__syncwarp", "simdgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup)"),
    (
        "__threadfence",
        "atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device)",
    ),
    (
        "__threadfence_system",
        "atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device)",
    ),
    (
        "__threadfence_block",
        "atomic_thread_fence(mem_flags::mem_device | mem_flags::mem_threadgroup, memory_order_seq_cst, thread_scope_threadgroup)",
    ),
    ("__activemask", "uint(simd_vote::vote_t(simd_active_threads_mask()))"),
    ("__elinvar_ballot", "uint(simd_vote::vote_t(simd_ballot({0})))"),
    ("__elinvar_any", "int(simd_any({0}))"),
    ("__elinvar_all", "int(simd_all({0}))"),
    ("__elinvar_grid_barrier", "elinvar::grid_barrier()"),
    ("__reduce_add_sync", "simd_sum({1})"),
    ("__reduce_min_sync", "simd_min({1})"),
    ("__reduce_max_sync", "simd_max({1})"),
    ("__reduce_and_sync", "simd_and({1})"),
    ("__reduce_or_sync", "simd_or({1})"),
    ("__reduce_xor_sync", "simd_xor({1})"),
    ("__popc", "int(popcount({0}))"),
    ("__popcll", "int(popcount({0}))"),
    ("__clz", "int(clz({0}))"),
    ("__clzll", "int(clz({0}))"),
    ("__elinvar_ctz", "int(ctz({0}))"),
    ("__brev", "reverse_bits({0})"),
    ("__brevll", "reverse_bits({0})"),
    ("__mulhi", "mulhi({0}, {1})"),
    ("__umulhi", "mulhi({0}, {1})"),
    ("__mul64hi", "mulhi({0}, {1})"),
    ("__umul64hi", "mulhi({0}, {1})"),
    ("__mul24", "mul24({0}, {1})"),
    ("__umul24", "mul24({0}, {1})"),
    ("__hadd_int", "hadd({0}, {1})"),
    ("__uhadd", "hadd({0}, {1})"),
    ("__rhadd", "rhadd({0}, {1})"),
    ("__urhadd", "rhadd({0}, {1})"),
    ("__sad", "(absdiff({0}, {1}) + {2})"),
    ("__usad", "(absdiff({0}, {1}) + {2})"),
    ("__float_as_int", "as_type<int>({0})"),
    ("__float_as_uint", "as_type<uint>({0})"),
    ("__int_as_float", "as_type<float>({0})"),
    ("__uint_as_float", "as_type<float>({0})"),
    ("__half_as_short", "as_type<short>({0})"),
    ("__half_as_ushort", "as_type<ushort>({0})"),
    ("__short_as_half", "as_type<half>({0})"),
    ("__ushort_as_half", "as_type<half>({0})"),
    ("__bfloat16_as_short", "as_type<short>({0})"),
    ("__bfloat16_as_ushort", "as_type<ushort>({0})"),
    ("__short_as_bfloat16", "as_type<bfloat>({0})"),
    ("__ushort_as_bfloat16", "as_type<bfloat>({0})"),
    ("__float2int_rn", "int(rint({0}))"),
    ("__float2int_rz", "int({0})"),
    ("__float2int_rd", "int(floor({0}))"),
    ("__float2int_ru", "int(ceil({0}))"),
    ("__float2uint_rn", "uint(rint({0}))"),
    ("__float2uint_rz", "uint({0})"),
    ("__float2uint_rd", "uint(floor({0}))"),
    ("__float2uint_ru", "uint(ceil({0}))"),
    ("__float2ll_rn", "long(rint({0}))"),
    ("__float2ll_rz", "long({0})"),
    ("__int2float_rn", "float({0})"),
    ("__uint2float_rn", "float({0})"),
    ("__ll2float_rn", "float({0})"),
    ("__ull2float_rn", "float({0})"),
    ("__fadd_rn", "({0} + {1})"),
    ("__fsub_rn", "({0} - {1})"),
    ("__fmul_rn", "({0} * {1})"),
    ("__fdiv_rn", "({0} / {1})"),
    ("__frcp_rn", "(1.0f / {0})"),
    ("__fsqrt_rn", "precise::sqrt({0})"),
    ("__frsqrt_rn", "precise::rsqrt({0})"),
    ("__fmaf_rn", "fma({0}, {1}, {2})"),
    ("__fdividef", "fast::divide({0}, {1})"),
    ("fdividef", "({0} / {1})"),
    ("__saturatef", "saturate({0})"),
    ("__expf", "fast::exp({0})"),
    ("__exp10f", "fast::exp10({0})"),
    ("__logf", "fast::log({0})"),
    ("__log2f", "fast::log2({0})"),
    ("__log10f", "fast::log10({0})"),
    ("__sinf", "fast::sin({0})"),
    ("__cosf", "fast::cos({0})"),
    ("__tanf", "fast::tan({0})"),
    ("__tanhf", "fast::tanh({0})"),
    ("__powf", "fast::pow({0}, {1})"),
    ("__elinvar_sqrt_half", "sqrt({0})"),
    ("__builtin_assume", "(void)0"),
    ("__builtin_unreachable", "(void)0"),
    ("__builtin_expect", "{0}"),
    ("isnan", "isnan({0})"),
    ("isinf", "isinf({0})"),
    ("isfinite", "isfinite({0})"),
    ("__isnanf", "isnan({0})"),
    ("__isinff", "isinf({0})"),
    ("__finitef", "isfinite({0})"),
    ("signbit", "signbit({0})"),
    ("__signbitf", "signbit({0})"),
    ("abs", "abs({0})"),
    ("labs", "abs({0})"),
    ("llabs", "abs({0})"),
    ("min", "min({0}, {1})"),
    ("max", "max({0}, {1})"),
    ("umin", "min({0}, {1})"),
    ("umax", "max({0}, {1})"),
    ("llmin", "min({0}, {1})"),
    ("llmax", "max({0}, {1})"),
    ("ullmin", "min({0}, {1})"),
    ("ullmax", "max({0}, {1})"),
    ("lrintf", "long(rint({0}))"),
    ("llrintf", "long(rint({0}))"),
    ("lroundf", "long(round({0}))"),
    ("llroundf", "long(round({0}))"),
    ("nearbyint", "rint({0})"),
    ("max_int", "max({0}, {1})"),
    ("__elinvar_bfloat_of_bits", "as_type<bfloat>({0})"),
];

/// Functions of `float` that are those of `precise::`.
const PRECISE: &[&str] = &[
    "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
    "exp", "exp2", "exp10", "log", "log2", "log10", "sqrt", "rsqrt", "pow", "sinpi", "cospi", "tanpi",
    "fmod",
];

/// Functions of `float` with the same name.
const SAME: &[&str] = &[
    "fabs",
    "floor",
    "ceil",
    "trunc",
    "round",
    "rint",
    "fmax",
    "fmin",
    "fma",
    "copysign",
    "fdim",
    "ldexp",
    "ilogb",
    "nextafter",
];

/// Functions of `float` that MSL lacks, which are written above.
const WRITTEN: &[(&str, &str)] = &[
    ("erf", "cl_erf"),
    ("erfc", "cl_erfc"),
    ("cbrt", "cl_cbrt"),
    ("hypot", "cl_hypot"),
    ("expm1", "cl_expm1"),
    ("log1p", "cl_log1p"),
];

/// Definitions that MSL lacks, by name, each behind those that it uses.
pub(super) const HELPERS: &[(&str, &str)] = &[
    ("cl_erfc", include_str!("../opencl/builtins/msl/erfc.metal")),
    ("cl_erf", include_str!("../opencl/builtins/msl/erf.metal")),
    ("cl_cbrt", include_str!("../opencl/builtins/msl/cbrt.metal")),
    ("cl_hypot", include_str!("../opencl/builtins/msl/hypot.metal")),
    ("cl_expm1", include_str!("../opencl/builtins/msl/expm1.metal")),
    ("cl_log1p", include_str!("../opencl/builtins/msl/log1p.metal")),
    ("copy_bytes", include_str!("msl/copy_bytes.metal")),
    ("atomic_words", include_str!("msl/atomic_words.metal")),
    ("atomic_cas", include_str!("msl/atomic_cas.metal")),
    ("atomic_add_float", include_str!("msl/atomic_add_float.metal")),
    ("atomic_cas_16", include_str!("msl/atomic_cas_16.metal")),
];

/// Whether a call of a function that our header defines is written as an expression all the same: shuffles and votes of a whole warp.
pub(super) fn is_inline(node: &Node) -> bool {
    let Some(to) = node.callee().and_then(|callee| callee.refers.as_ref()) else { return false };
    let args = &node.children[1..];
    let is_number = |index: usize, value: i64| {
        args.get(index).is_some_and(|arg| {
            let bare = arg.bare();
            bare.kind == "IntegerLiteral" && bare.value.parse::<i64>().ok() == Some(value)
        })
    };
    match to.name.as_str() {
        "__shfl_sync" | "__shfl_xor_sync" | "__shfl_up_sync" | "__shfl_down_sync" => is_number(3, 32),
        "__shfl" | "__shfl_xor" | "__shfl_up" | "__shfl_down" => is_number(2, 32),
        "__ballot_sync" | "__any_sync" | "__all_sync" => is_full(args.first()),
        _ => false,
    }
}

/// Whether a mask names all lanes.
fn is_full(mask: Option<&Node>) -> bool {
    let Some(mut node) = mask else { return false };
    node = node.bare();
    match node.kind.as_str() {
        "IntegerLiteral" => matches!(node.value.parse::<i64>(), Ok(0xffff_ffff)),
        "UnaryOperator" => {
            let inner = node.first().map(Node::bare);
            let value = inner.and_then(|inner| inner.value.parse::<i64>().ok());
            (node.opcode == "-" && value == Some(1)) || (node.opcode == "~" && value == Some(0))
        }
        _ => false,
    }
}

/// The text of a call.
pub(super) fn call(to: &mut Renderer<'_, '_>, node: &Node, name: &str, args: &[&Node]) -> String {
    if let Some(text) = super::atomics::call(to, node, name, args)
        .or_else(|| shuffle(to, name, args))
        .or_else(|| memory(to, node, name, args))
    {
        return text;
    }
    // Arithmetic in `double` was refused, or is that of `float`.
    let is_double = to.scalar_of(node) == Some(Scalar::Double)
        || args.iter().any(|arg| to.scalar_of(arg) == Some(Scalar::Double));
    if is_double && !to.loose {
        return to.no(node, &format!("`{name}` of `double`, which does not exist in Metal"));
    }
    let texts: Vec<String> = args.iter().map(|arg| to.argument(arg)).collect();
    if let Some((scalar, lanes)) = name.strip_prefix("make_").and_then(super::types::vector) {
        return format!("{}({})", super::types::vector_name(scalar, lanes), texts.join(", "));
    }
    if name.starts_with("__builtin_inf") || name.starts_with("__builtin_nan") {
        return if name.contains("inf") { "INFINITY".into() } else { "NAN".into() };
    }
    if let Some((_, template)) = TEMPLATES.iter().find(|(known, _)| *known == name) {
        let mut text = (*template).to_owned();
        for (index, argument) in texts.iter().enumerate() {
            let mark = format!("{{{index}}}");
            let is_alone = text.contains(&format!("({mark}")) && !text.starts_with('(');
            let is_alone = is_alone || text.contains(&format!(", {mark}"));
            text =
                text.replace(&mark, &if is_alone { argument.clone() } else { Renderer::enclosed(argument) });
        }
        if text.contains("elinvar::") {
            to.includes.insert("elinvar/grid");
        }
        if name.starts_with("__threadfence") {
            to.notes.difference(
                "`__threadfence` is a fence of Metal 3.2; that of the system is one of the device",
            );
        }
        to.notes.function(name, template);
        return text;
    }
    let base = name.strip_suffix('f').filter(|base| known_math(base)).unwrap_or(name);
    if PRECISE.contains(&base) {
        let is_half =
            to.scalar_of(node).is_some_and(|scalar| matches!(scalar, Scalar::Half | Scalar::BFloat));
        if !is_half {
            to.notes.function(name, &format!("precise::{base}"));
            return format!("precise::{base}({})", texts.join(", "));
        }
    }
    if SAME.contains(&base) {
        to.notes.function(name, base);
        return format!("{base}({})", texts.join(", "));
    }
    if let Some((_, written)) = WRITTEN.iter().find(|(known, _)| *known == base) {
        if *written == "cl_erf" {
            to.need("cl_erfc");
        }
        to.need(written);
        to.notes.function(name, written);
        return format!("{written}({})", texts.join(", "));
    }
    let why = match name {
        "__elinvar_ptx" => "inline PTX has no counterpart in Metal".to_owned(),
        "tex1Dfetch" | "tex1D" | "tex2D" | "tex3D" | "tex2DLayered" | "surf2Dread" | "surf2Dwrite"
        | "surf3Dread" | "surf3Dwrite" => {
            format!("`{name}`: textures and surfaces are not supported")
        }
        "clock" | "clock64" | "globaltimer" => format!("`{name}`: Metal has no clock in kernels"),
        "malloc" | "free" => format!("`{name}`: Metal has no memory allocation in kernels"),
        "__trap" | "__brkpt" | "abort" => format!("`{name}`: a kernel of Metal cannot stop"),
        _ => format!("`{name}` has no counterpart in Metal"),
    };
    to.no(node, &why)
}

fn known_math(base: &str) -> bool {
    PRECISE.contains(&base)
        || SAME.contains(&base)
        || WRITTEN.iter().any(|(known, _)| *known == base)
        || base == "nearbyint"
}

/// A shuffle of a whole warp, and what our header makes of the others.
fn shuffle(to: &mut Renderer<'_, '_>, name: &str, args: &[&Node]) -> Option<String> {
    let (function, value, lane) = match name {
        "__shfl_sync" => ("simd_shuffle", 1, 2),
        "__shfl_xor_sync" => ("simd_shuffle_xor", 1, 2),
        "__shfl_up_sync" => ("simd_shuffle_up", 1, 2),
        "__shfl_down_sync" => ("simd_shuffle_down", 1, 2),
        "__shfl" | "__elinvar_shuffle" => ("simd_shuffle", 0, 1),
        "__shfl_xor" => ("simd_shuffle_xor", 0, 1),
        "__shfl_up" => ("simd_shuffle_up", 0, 1),
        "__shfl_down" => ("simd_shuffle_down", 0, 1),
        "__ballot_sync" => {
            return Some(format!("uint(simd_vote::vote_t(simd_ballot({})))", to.truth(args[1])));
        }
        "__any_sync" => return Some(format!("int(simd_any({}))", to.truth(args[1]))),
        "__all_sync" => return Some(format!("int(simd_all({}))", to.truth(args[1]))),
        _ => return None,
    };
    let (value, lane) = (*args.get(value)?, *args.get(lane)?);
    let scalar = to.scalar_of(value);
    let text = to.argument(value);
    let index = to.argument(lane);
    // Lanes count modulo the warp.
    let index = match lane.bare().kind.as_str() {
        "IntegerLiteral" => index,
        _ if function == "simd_shuffle" && name != "__elinvar_shuffle" => {
            format!("ushort({} & 31)", Renderer::enclosed(&index))
        }
        _ => format!("ushort({index})"),
    };
    to.notes.function(name, function);
    Some(match scalar {
        Some(Scalar::BFloat) => format!("as_type<bfloat>({function}(as_type<ushort>({text}), {index}))"),
        Some(of @ (Scalar::Long | Scalar::ULong)) => {
            format!("as_type<{}>({function}(as_type<uint2>({text}), {index}))", of.word())
        }
        Some(Scalar::Bool) => format!("bool({function}(uint({text}), {index}))"),
        _ => format!("{function}({text}, {index})"),
    })
}

/// Loads and stores with hints for caches, `printf`, and functions with results in memory.
fn memory(to: &mut Renderer<'_, '_>, node: &Node, name: &str, args: &[&Node]) -> Option<String> {
    match name {
        "__ldg" | "__ldcg" | "__ldca" | "__ldcs" | "__ldlu" | "__ldcv" => {
            let text = to.argument(args.first()?);
            Some(format!("(*{})", Renderer::enclosed(&text)))
        }
        "__stwb" | "__stcg" | "__stcs" | "__stwt" => {
            let (pointer, value) = (to.argument(args.first()?), to.argument(args.get(1)?));
            Some(format!("*{} = {value}", Renderer::enclosed(&pointer)))
        }
        "sincosf" | "__sincosf" | "sincos" | "sincospif" => {
            let space = if name.starts_with("__") { "fast" } else { "precise" };
            let pi = if name.contains("pi") { "pi" } else { "" };
            let [x, s, c] = args else { return None };
            let (x, s, c) = (to.argument(x), to.argument(s), to.argument(c));
            Some(format!(
                "(*{} = {space}::sin{pi}({x}), *{} = {space}::cos{pi}({x}))",
                Renderer::enclosed(&s),
                Renderer::enclosed(&c)
            ))
        }
        "frexpf" | "frexp" | "modff" | "modf" => {
            let [x, result] = args else { return None };
            if to.space_behind(result) != Space::Thread {
                return Some(to.no(node, &format!("`{name}` with a result that is not in a variable")));
            }
            let (x, result) = (to.argument(x), to.argument(result));
            Some(format!(
                "{}({x}, *{})",
                name.trim_end_matches('f').replace("mod", "modf").replace("ff", "f"),
                Renderer::enclosed(&result)
            ))
        }
        "printf" => Some(print(to, node, args)),
        "memcpy" | "memset" | "__builtin_memcpy" | "__builtin_memset" => {
            let [target, value, size] = args else { return None };
            let (into, from) = (to.space_behind(target).word(), to.space_behind(value).word());
            if into == Space::Constant.word() {
                return Some(to.no(node, &format!("`{name}` into constant memory")));
            }
            let [target, value, size] = [target, value, size].map(|arg| to.argument(arg));
            let function = if name.ends_with("memcpy") { "copy_bytes" } else { "set_bytes" };
            to.need("copy_bytes");
            to.notes.function(name, function);
            let target = format!("({into} uchar*){}", Renderer::enclosed(&target));
            let value = match function {
                "copy_bytes" => format!("({from} const uchar*){}", Renderer::enclosed(&value)),
                _ => format!("uchar({value})"),
            };
            Some(format!("{function}({target}, {value}, {size})"))
        }
        _ => None,
    }
}

fn print(to: &mut Renderer<'_, '_>, node: &Node, args: &[&Node]) -> String {
    let Some(format) = args.first().map(|arg| arg.bare()).filter(|arg| arg.kind == "StringLiteral") else {
        return to.no(node, "`printf` needs a format that is a literal");
    };
    let mut texts = vec![format.value.clone()];
    for arg in &args[1..] {
        // `float` is passed as `double`.
        let mut value = *arg;
        while value.kind == "ImplicitCastExpr"
            && to.scalar_of(value) == Some(Scalar::Double)
            && value.cast == "FloatingCast"
        {
            value = value.first().unwrap_or(value);
        }
        if value.bare().kind == "StringLiteral" || to.scalar_of(value).is_none() {
            return to.no(node, "`printf` of text and pointers is not supported");
        }
        texts.push(to.argument(value));
    }
    to.includes.insert("metal_logging");
    to.notes.function("printf", "os_log_default.log (Metal 3.2)");
    format!("os_log_default.log({})", texts.join(", "))
}
