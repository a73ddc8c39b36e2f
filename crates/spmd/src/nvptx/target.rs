//! Retargets a module from the host to NVPTX: triple, data layout, attributes, metadata.
//!
//! Types have the same sizes and alignments in both data layouts: the front end emits MSL's explicitly, with an alignment at
//! every access.

use elinvar_ir::{MetadataNode, Module, Op};

use super::{Argument, Options};
use crate::Error;
use crate::support::demangle::source_name;
use crate::support::ir::callee_name;

/// The target, as clang names it.
pub const TRIPLE: &str = "nvptx64-nvidia-cuda";

/// LLVM's data layout for it.
const LAYOUT: &str = "e-i64:64-i128:128-v16:16-v32:32-n16:32:64";

/// Retargets the module.
pub(super) fn retarget(module: &mut Module, options: &Options) {
    module.triple = Some(TRIPLE.into());
    module.data_layout = Some(LAYOUT.into());
    for node in &mut module.metadata {
        // With full debug info, ptxas would not optimize.
        for kind in ["FullDebug", "LineTablesOnly"] {
            node.text =
                node.text.replace(&format!("emissionKind: {kind}"), "emissionKind: DebugDirectivesOnly");
        }
        // Otherwise there are labels within calls, which ptxas rejects.
        node.text = node.text.replace("DIFlagAllCallsDescribed", "DIFlagPrototyped");
    }
    for (_, text) in &mut module.attributes {
        *text = without_strings(text);
    }
    for function in module.functions.iter_mut().filter(|f| !f.is_declaration() && f.name != options.name) {
        function.linkage = "internal".into();
    }
    for global in module.globals.iter_mut().filter(|g| g.constant) {
        global.linkage = global.linkage.replace("dso_local", "").trim().to_owned();
    }
    let first = next_number(module);
    let mut nodes = Vec::new();
    let mut annotate = |text: String| {
        nodes.push(MetadataNode { name: (first + nodes.len() as u32).to_string(), text });
        format!("!{}", first + nodes.len() as u32 - 1)
    };
    let values = options.arguments.iter().enumerate().filter(|(_, a)| matches!(a, Argument::Value { .. }));
    let places: Vec<String> = values.map(|(index, _)| format!("i32 {}", index + 1)).collect();
    let mut annotations = Vec::new();
    // A parameter that is not written needs no per-thread copy.
    if !places.is_empty() {
        let list = annotate(format!("!{{{}}}", places.join(", ")));
        annotations.push(annotate(format!("!{{ptr @{}, !\"grid_constant\", {list}}}", options.name)));
    }
    if let Some(threads) = options.max_threads {
        annotations.push(annotate(format!("!{{ptr @{}, !\"maxntidx\", i32 {threads}}}", options.name)));
    }
    module.metadata.extend(nodes);
    if !annotations.is_empty() {
        let text = format!("!{{{}}}", annotations.join(", "));
        module.metadata.push(MetadataNode { name: "nvvm.annotations".into(), text });
    }
}

/// C library functions that LLVM treats as intrinsics and the target lacks. The headers implement their own.
const MATHEMATICS: [&str; 9] = ["cos", "exp", "exp10", "exp2", "log", "log10", "log2", "pow", "sin"];

/// Rejects calls of functions that are neither in the module nor known to the target.
pub(super) fn check_calls(module: &Module, is_defined: &dyn Fn(&str) -> bool) -> Result<(), Error> {
    for inst in module.functions.iter().flat_map(|f| &f.blocks).flat_map(|b| &b.insts) {
        let Op::Call(call) = &inst.op else { continue };
        let name = callee_name(call).unwrap_or_default();
        let known = match name.strip_prefix("llvm.") {
            Some(intrinsic) => !MATHEMATICS.contains(&intrinsic.split('.').next().unwrap_or_default()),
            None => is_defined(name) || module.function(name).is_some_and(|f| !f.is_declaration()),
        };
        if !known {
            let what = format!("a call of `{}` on an NVIDIA GPU", source_name(name));
            return Err(Error::unsupported(what, module.location(&inst.metadata)));
        }
    }
    Ok(())
}

fn next_number(module: &Module) -> u32 {
    let numbers = module.metadata.iter().filter_map(|node| node.name.parse::<u32>().ok());
    numbers.max().map_or(0, |last| last + 1)
}

/// Attributes without string attributes, which concern the host processor and the floating-point mode; the
/// instructions have the latter.
fn without_strings(text: &str) -> String {
    let words = text.split_whitespace().filter(|word| !word.starts_with('"'));
    words.filter(|word| !word.starts_with("uwtable")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_taken_out() {
        let text =
            "mustprogress nounwind \"target-cpu\"=\"x86-64\" \"target-features\"=\"+f16c,+mmx\" memory(none)";
        assert_eq!(without_strings(text), "mustprogress nounwind memory(none)");
    }
}
