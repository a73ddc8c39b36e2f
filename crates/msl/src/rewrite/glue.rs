//! Generated C++ after the rewritten source: the tables that describe kernels, or the entry of one.
//!
//! Glue maps to the kernel's name, which is where diagnostics about it point.

use std::fmt::Write as _;

use crate::reflection::builtins;
use crate::rewrite::attributes::Attribute;
use crate::rewrite::buffer::RewriteBuffer;
use crate::rewrite::function_constants::FunctionConstantDecl;
use crate::rewrite::function_head::Space;
use crate::rewrite::kernels::{Kernel, Param, Template};
use crate::rewrite::struct_attributes::AttributedStruct;

/// Name of the function that a kernel's IR defines.
pub const ENTRY: &str = "__elinvar_entry";

/// Name of the table of conditional parameters: 1, then for each [`ABSENT`], `ABSENT + 1` if present, or `ABSENT + 2` if
/// unknown.
pub(crate) const PRESENT: &str = "__elinvar_present";

/// Entry of an absent parameter. Not 0: clang emits trailing zeros in another form.
pub(crate) const ABSENT: i64 = 3;

/// A line marker that attributes what follows to Elinvar, for debug locations and warnings.
pub(crate) const GLUE_MARKER: &str = "\n# 1 \"elinvar_stdlib/glue\" 3\n";

/// Replaces `template` of a kernel's explicit instantiation; defined by [`ALL_KERNELS`] and the like.
pub(crate) const INSTANTIATE: &str = "ELINVAR_INSTANTIATE";

/// Precedes each kernel template, with its index.
pub(crate) const TEMPLATE: &str = "ELINVAR_TEMPLATE";

/// Compile every instantiation, for its diagnostics.
pub(crate) const ALL_KERNELS: &str = "#define ELINVAR_INSTANTIATE template\n#define ELINVAR_TEMPLATE(i)\n";

/// Compile the instantiations that are called. Kernels are inline, so that these are compiled here.
pub(crate) const KERNELS_IN_USE: &str =
    "#define ELINVAR_INSTANTIATE extern template\n#define ELINVAR_TEMPLATE(i)\n";

/// Annotate the kernel templates, for [`selections`].
pub(crate) const ANNOTATED_TEMPLATES: &str = "#define ELINVAR_INSTANTIATE extern template\n\
    #define ELINVAR_TEMPLATE(i) __attribute__((annotate(\"elinvar_template_\" #i)))\n";

/// Entries of [`tables`]' list of values before the first parameter's index.
pub(crate) const VALUES_BEFORE_INDICES: usize = 3;

/// Whether a parameter is an argument of the launch.
pub(crate) fn is_launch_argument(param: &Param) -> bool {
    !param.has_members && !param.attributes.iter().any(|a| builtins::dimensions(&a.name).is_some())
}

/// Append each kernel's table of parameters, and its table of attribute values.
pub(crate) fn tables(text: &mut RewriteBuffer, kernels: &[Kernel]) {
    for (i, kernel) in kernels.iter().enumerate() {
        let (offset, count) = (kernel.offset, kernel.params.len());
        text.replace(&format!("{GLUE_MARKER}{}", open(kernel)), offset);
        text.replace(&format!("using elinvar_kernel_{i} = {};\n", pointer(kernel)), offset);
        let limit = limit(text, i, kernel);
        let mut table = format!(
            "static_assert(elinvar::function<elinvar_kernel_{i}>::count == {count}, \"parameters of the kernel\");\n\
             extern \"C\" {{ extern const elinvar::description __elinvar_parameters_{i}[];\n\
             constexpr elinvar::description __elinvar_parameters_{i}[] = {{\n"
        );
        for p in 0..count {
            let _ = writeln!(table, "elinvar::described<elinvar::parameter_t<{p}, elinvar_kernel_{i}>>,");
        }
        let _ = write!(
            table,
            "elinvar::described<int>}};\nextern const long __elinvar_values_{i}[];\n\
             constexpr long __elinvar_values_{i}[] = {{1, \
             __is_void(typename elinvar::function<elinvar_kernel_{i}>::result),"
        );
        text.replace(&table, offset);
        match limit {
            Some(value) => text.replace(&value, offset),
            None => expression(text, kernel.max_threads.as_ref(), offset),
        }
        for param in &kernel.params {
            expression(text, index(param), param.offset);
        }
        text.replace(&format!("}}; }}\n{}", close(kernel)), offset);
    }
}

/// Append the types of the members of each struct with attributes.
pub(crate) fn member_tables(text: &mut RewriteBuffer, structs: &[AttributedStruct]) {
    for (k, AttributedStruct { path, members }) in structs.iter().enumerate() {
        for member in members {
            let of = format!("decltype(::{path}::{})", member.name);
            let head = if std::ptr::eq(member, &members[0]) {
                format!(
                    "{GLUE_MARKER}extern \"C\" {{ extern const elinvar::description __elinvar_members_{k}[];\n\
                     constexpr elinvar::description __elinvar_members_{k}[] = {{\n"
                )
            } else {
                String::new()
            };
            text.replace(&format!("{head}elinvar::describe<{of}>(),\n"), member.offset);
        }
        text.replace("}; }\n", members[0].offset);
    }
}

/// Append the type and the index of each function constant.
pub(crate) fn constant_tables(text: &mut RewriteBuffer, constants: &[FunctionConstantDecl]) {
    for (k, constant) in constants.iter().enumerate() {
        let spaces: Vec<&str> = constant.path.split("::").collect();
        let spaces = &spaces[..spaces.len() - 1];
        let path = &constant.path;
        let open: String = spaces.iter().map(|n| format!("namespace {n} {{ ")).collect();
        text.replace(
            &format!(
                "{GLUE_MARKER}{open}extern \"C\" {{ extern const elinvar::description __elinvar_constant_types_{k}[];\n\
                 constexpr elinvar::description __elinvar_constant_types_{k}[] = {{\n\
                 elinvar::described<__remove_cv(decltype(::{path}))>, elinvar::described<int>}};\n\
                 extern const long __elinvar_constant_values_{k}[];\n\
                 constexpr long __elinvar_constant_values_{k}[] = {{1, "
            ),
            constant.offset,
        );
        expression(text, Some(&constant.attribute), constant.offset);
        text.replace(&format!("}}; }}\n{}", "}\n".repeat(spaces.len())), constant.offset);
    }
}

/// Append, for each kernel whose template is in question, a pointer to the function that it names.
pub(crate) fn selections(text: &mut RewriteBuffer, kernels: &[Kernel]) {
    for (i, kernel) in kernels.iter().enumerate().filter(|(_, kernel)| kernel.candidates.len() > 1) {
        let selection = format!(
            "{GLUE_MARKER}{}using elinvar_kernel_{i} = {};\n\
             extern \"C\" {{ extern const elinvar_kernel_{i} __elinvar_selected_{i};\n\
             constexpr elinvar_kernel_{i} __elinvar_selected_{i} = &{}; }}\n{}",
            open(kernel),
            pointer(kernel),
            kernel.path(),
            close(kernel)
        );
        text.replace(&selection, kernel.offset);
    }
}

/// The type of a pointer to the kernel.
fn pointer(kernel: &Kernel) -> String {
    match &kernel.function {
        Some(function) => format!("elinvar::type_of<{function}>*"),
        None => format!("decltype(&{})", kernel.path()),
    }
}

/// Append a function template for a limit that may depend on template parameters, which are deduced as the kernel's are. Returns
/// the expression that calls it.
fn limit(text: &mut RewriteBuffer, i: usize, kernel: &Kernel) -> Option<String> {
    let Template { head, parameters } = kernel.limited.as_ref()?;
    let attribute = kernel.max_threads.as_ref()?;
    let argument = attribute.argument.as_deref()?;
    text.replace(
        &format!("template {head} constexpr long elinvar_limit_{i}(void (*)({parameters})) {{ return ("),
        kernel.offset,
    );
    text.copy(argument, attribute.argument_offset);
    text.replace("); }\n", kernel.offset);
    Some(format!("elinvar_limit_{i}{}((elinvar_kernel_{i})0),", kernel.template_arguments()))
}

/// The attribute with a parameter's index.
pub(crate) fn index(param: &Param) -> Option<&Attribute> {
    param.attributes.iter().find(|a| matches!(a.name.as_str(), "buffer" | "threadgroup"))
}

/// Append the value of an attribute's argument, −1 without one.
fn expression(text: &mut RewriteBuffer, attribute: Option<&Attribute>, offset: usize) {
    match attribute.and_then(|a| Some((a.argument.as_deref()?, a.argument_offset))) {
        Some((argument, at)) => {
            text.replace("\n(long)(", at);
            text.copy(argument, at);
            text.replace("),", at);
        }
        None => text.replace("-1,", offset),
    }
}

/// Append the entry of a kernel, with this suffix of its name. A parameter that is absent for its function constant takes no space;
/// [`PRESENT`], with the same suffix, says which are present. With `spaces`, the entry says its arguments' address spaces.
pub(crate) fn entry(text: &mut RewriteBuffer, kernel: &Kernel, suffix: &str, spaces: bool) {
    let offset = kernel.offset;
    text.replace(&format!("{GLUE_MARKER}{}extern \"C\" {{\n", open(kernel)), offset);
    let conditions: Vec<&Attribute> = kernel.params.iter().filter_map(Param::condition).collect();
    if !conditions.is_empty() {
        let table = format!("{PRESENT}{suffix}");
        text.replace(&format!("extern const long {table}[];\nconstexpr long {table}[] = {{1,\n"), offset);
        for condition in conditions {
            text.replace(&format!("{ABSENT} + (long)("), offset);
            folded(text, condition, "2");
            text.replace("),\n", offset);
        }
        text.replace("};\n", offset);
    }
    text.replace(&format!("void {ENTRY}{suffix}("), offset);
    let memory = kernel.params.iter().enumerate().filter(|(_, param)| is_launch_argument(param));
    for (n, (p, param)) in memory.enumerate() {
        text.replace(if n > 0 { ", " } else { "" }, offset);
        match param.condition() {
            Some(condition) => {
                text.replace("elinvar::optional<(", offset);
                folded(text, condition, "0");
                text.replace(&format!(") != 0> a{p}"), offset);
            }
            None => text.replace(&format!("void* a{p}"), offset),
        }
    }
    let arguments: Vec<String> =
        kernel.params.iter().enumerate().map(|(p, param)| argument(p, param)).collect();
    let said = kernel.params.iter().enumerate().filter(|(_, param)| spaces && is_launch_argument(param));
    let said: String = said
        .map(|(p, param)| {
            let space = param.space.map_or(Space::Constant, Space::from);
            format!("elinvar::argument_space(a{p}, {});\n", space as u8)
        })
        .collect();
    let glue = format!(
        ") {{\n{said}using F [[maybe_unused]] = {};\n{}({});\n}} }}\n{}",
        pointer(kernel),
        kernel
            .function
            .as_ref()
            .map_or_else(|| kernel.path(), |_| format!("static_cast<F>(&{})", kernel.path())),
        arguments.join(",\n"),
        close(kernel),
    );
    text.replace(&glue, offset);
}

/// Append a condition folded to 0 or 1, or `otherwise` if it is not constant.
fn folded(text: &mut RewriteBuffer, condition: &Attribute, otherwise: &str) {
    let (argument, at) = (condition.argument.as_deref().unwrap_or("1"), condition.argument_offset);
    text.replace("__builtin_constant_p((bool)(", at);
    text.copy(argument, at);
    text.replace(")) ? (int)(bool)(", at);
    text.copy(argument, at);
    text.replace(&format!(") : {otherwise}"), at);
}

fn argument(p: usize, param: &Param) -> String {
    let builtin = param.attributes.iter().find(|a| builtins::dimensions(&a.name).is_some());
    match builtin {
        Some(a) => {
            format!("elinvar::builtin<elinvar::parameter_t<{p}, F>, elinvar::attribute::{}>()", a.name)
        }
        None if param.has_members => format!("elinvar::parameter_t<{p}, F>{{}}"),
        None => format!("elinvar::memory<elinvar::parameter_t<{p}, F>>(a{p})"),
    }
}

fn open(kernel: &Kernel) -> String {
    kernel.namespaces.iter().map(|n| format!("namespace {n} {{ ")).collect()
}

fn close(kernel: &Kernel) -> String {
    "}\n".repeat(kernel.namespaces.len())
}
