//! CUDA C++ to MSL.
//!
//! ```text
//! CUDA C++ ── clang -E ──> text ── clang -ast-dump=json ──> tree ── names, program, spaces ── render ──> MSL
//! ```
//!
//! clang parses with headers of our own (`headers/`), which declare CUDA's types and functions; those with bodies are translated like the
//! source. In the tree templates are instantiated. `program` has the functions that kernels reach, one for each combination of address
//! spaces (`spaces`), and what each needs from its kernel: positions and shared memory, which are parameters in MSL. `render` writes them.

mod ast;
mod atomics;
mod builtins;
mod host;
mod host_code;
mod names;
mod output;
mod program;
mod render;
mod spaces;
mod types;

use std::collections::{BTreeMap, BTreeSet};

use elinvar_driver::{Diagnostic, Source};
use elinvar_msl::Toolchain;

use self::ast::Node;
use self::host_code::{SyntaxError, errors_in, errors_of_record, unread};
use self::names::Names;
use self::output::{Lines, Part};
use self::program::{HEADERS, Program};
use self::render::Renderer;
use crate::opencl::clang::{Clang, Language, Tree};
use crate::opencl::text::Text;
use crate::opencl::{Kernel, Translation};
use crate::{Error, Result};

/// How a CUDA source is translated.
#[derive(Clone, Debug)]
pub struct CudaOptions {
    /// Whether `#line` directives name the original lines.
    pub lines: bool,
    /// Only these kernels; all if empty. A template's name stands for its instances.
    pub kernels: Vec<String>,
    /// Whether arithmetic in `double` between values of `float` is computed in `float`, if that is not exact. It is refused otherwise.
    pub double_as_float: bool,
    /// Whether the launches `<<<>>>` of the source are written as Rust.
    pub host_stub: bool,
    /// Whether host code is skipped: headers that are not found are empty, and errors of clang count only in kernels and in what they use.
    pub skip_host: bool,
    /// Instances of templates besides those that the source makes, such as `scale<float, 4>`.
    pub instances: Vec<String>,
}

impl Default for CudaOptions {
    fn default() -> Self {
        Self {
            lines: true,
            kernels: Vec::new(),
            double_as_float: false,
            host_stub: false,
            skip_host: false,
            instances: Vec::new(),
        }
    }
}

const fn header(name: &'static str, text: &'static str) -> (&'static str, &'static str) {
    (name, text)
}

const BUILTINS: &str = "elinvar_builtins.h";
const EMPTY: &str = "#pragma once\n";
const TRAITS: &str = "#pragma once\n#include \"elinvar_type_traits.h\"\n";
const GROUPS: &str = include_str!("headers/cooperative_groups.h");

/// Our headers, by the names of CUDA's and the standard library's.
const FILES: &[(&str, &str)] = &[
    header(BUILTINS, include_str!("headers/elinvar_builtins.h")),
    header("elinvar_half.h", include_str!("headers/elinvar_half.h")),
    header("elinvar_type_traits.h", include_str!("headers/type_traits.h")),
    header("cooperative_groups.h", GROUPS),
    header("cooperative_groups/reduce.h", GROUPS),
    header("cooperative_groups/scan.h", GROUPS),
    header("assert.h", EMPTY),
    header("cassert", EMPTY),
    header("cfloat", EMPTY),
    header("climits", EMPTY),
    header("cmath", TRAITS),
    header("cstddef", TRAITS),
    header("cstdint", TRAITS),
    header("cstdio", EMPTY),
    header("cstdlib", EMPTY),
    header("cstring", EMPTY),
    header("algorithm", TRAITS),
    header("array", TRAITS),
    header("limits", TRAITS),
    header("numeric", TRAITS),
    header("type_traits", TRAITS),
    header("utility", TRAITS),
    header("functional", TRAITS),
    header("cuda.h", EMPTY),
    header("cuda_bf16.h", EMPTY),
    header("cuda_bf16.hpp", EMPTY),
    header("cuda_fp16.h", EMPTY),
    header("cuda_fp16.hpp", EMPTY),
    header("cuda_runtime.h", EMPTY),
    header("cuda_runtime_api.h", EMPTY),
    header("device_functions.h", EMPTY),
    header("device_launch_parameters.h", EMPTY),
    header("math_constants.h", EMPTY),
    header("sm_20_atomic_functions.h", EMPTY),
    header("sm_35_intrinsics.h", EMPTY),
    header("vector_types.h", EMPTY),
    header("vector_functions.h", EMPTY),
    header("float.h", EMPTY),
    header("inttypes.h", EMPTY),
    header("limits.h", EMPTY),
    header("math.h", EMPTY),
    header("stddef.h", EMPTY),
    header("stdint.h", EMPTY),
    header("stdio.h", EMPTY),
    header("stdlib.h", EMPTY),
    header("string.h", EMPTY),
    header("stdbool.h", EMPTY),
];

/// Name of the file with the instances that the options name.
const INSTANCES: &str = "instances";

fn language(options: &CudaOptions) -> Language {
    let instances: Vec<String> = options
        .instances
        .iter()
        .enumerate()
        .map(|(index, name)| format!("static auto* const elinvar_instance_{index} = &{name};"))
        .collect();
    let skip_host = options.skip_host;
    let options = [
        "-x",
        "cuda",
        "--cuda-device-only",
        "-nocudainc",
        "-nocudalib",
        "--cuda-gpu-arch=sm_80",
        "-std=c++17",
        "-nostdinc",
        "-nostdinc++",
        "-fno-color-diagnostics",
        "-Wno-unknown-cuda-version",
    ];
    let mut preprocess = vec!["-include".to_owned(), BUILTINS.to_owned()];
    preprocess.push("-Wno-everything".into());
    if skip_host {
        // What headers that are skipped would include.
        preprocess.extend(["-include".into(), "elinvar_type_traits.h".into()]);
    }
    Language {
        options: options.map(str::to_owned).to_vec(),
        preprocess,
        files: ["main.cu", "text.cu"],
        headers: Some((HEADERS, FILES)),
        skip_host,
        appendix: (!instances.is_empty()).then(|| (INSTANCES, instances.join("\n"))),
    }
}

/// Nesting of the tree needs stack: this much is reserved, and only used by deep sources.
const STACK: usize = 1 << 30;

/// Translates CUDA C++ (C++17).
///
/// # Errors
/// `Compile` if the source is not valid; `Environment` if clang cannot be run. Kernels that are valid and cannot be translated are in
/// [`Translation::errors`].
pub fn translate(toolchain: &Toolchain, source: &Source, options: &CudaOptions) -> Result<Translation> {
    let clang = Clang::of(language(options), toolchain, source)?;
    let text = clang.preprocess()?;
    let tree = clang.tree(&text.text)?;
    let path = clang.text_path();
    std::thread::scope(|scope| {
        let run = || write(source, &text, &tree, &path, options);
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, run);
        let thread = thread.map_err(|error| Error::Environment(error.to_string()))?;
        thread.join().unwrap_or_else(|_| Err(Error::Environment("the translation has failed".into())))
    })
}

fn write(
    source: &Source,
    text: &Text,
    tree: &Tree,
    path: &str,
    options: &CudaOptions,
) -> Result<Translation> {
    let name = source.files.first().map(|file| file.name.clone()).unwrap_or_default();
    let unit = ast::parse(&tree.json)
        .map_err(|message| Error::Compile(vec![Diagnostic::error(name, 0, 0, message)]))?;
    let wrong = |(at, message): &(usize, String)| {
        let is_instance = text.location(*at).file == INSTANCES;
        is_instance.then(|| diagnostic(source, text, *at, message))
    };
    let wrong: Vec<Diagnostic> = tree.errors.iter().filter_map(wrong).collect();
    if !wrong.is_empty() {
        return Err(Error::Compile(wrong));
    }
    let names = Names::new(&unit, path, &text.text);
    let symbols = host_symbols(source);
    let mut program = Program::new(&names, text, &symbols);
    let mut kernels = Vec::new();
    for node in names.functions.iter().copied().filter(|node| is_kernel(node, &program)) {
        if options.kernels.is_empty() || options.kernels.contains(&node.name) {
            kernels.push(node);
        }
    }
    // Fields of records get the address spaces that functions give them: a second round knows all.
    let mut indices: Vec<usize> = kernels.iter().map(|kernel| program.kernel(kernel)).collect();
    let fields = program.fields.borrow().clone();
    if !fields.is_empty() {
        program = Program::new(&names, text, &symbols);
        *program.fields.borrow_mut() = fields;
        indices = kernels.iter().map(|kernel| program.kernel(kernel)).collect();
    }
    let stub = options.host_stub.then(|| host::stub(&names, &program, &indices, text));
    let mut translation = assemble(source, text, &program, &indices, options, stub, &tree.errors);
    if options.skip_host {
        for kernel in unread(&unit, &program, &tree.errors) {
            translation.errors.push(diagnostic(source, text, kernel.at, &kernel.message));
            translation.refused.push(kernel.name);
        }
    }
    if options.kernels.is_empty() {
        translation.templates = names.templates().map(str::to_owned).collect();
    }
    Ok(translation)
}

fn is_kernel(node: &Node, program: &Program<'_>) -> bool {
    node.has("CUDAGlobalAttr") && node.body().is_some() && !program.is_header(node)
}

/// The program in MSL and the report.
fn assemble(
    source: &Source,
    text: &Text,
    program: &Program<'_>,
    kernels: &[usize],
    options: &CudaOptions,
    stub: Option<String>,
    syntax: &[SyntaxError],
) -> Translation {
    let mut renderer = Renderer::new(program, options.double_as_float);
    let mut errors: BTreeMap<usize, Vec<(usize, String)>> = BTreeMap::new();
    let mut functions = BTreeMap::new();
    let mut used = BTreeMap::new();
    for index in 0..program.instances.len() {
        renderer.records.clear();
        renderer.globals.clear();
        renderer.helpers.clear();
        let (rows, mut found) = renderer.function(index);
        // Others may only follow from clang's.
        let own = errors_in(program.instances[index].node, syntax);
        if !own.is_empty() {
            found = own;
        }
        if !found.is_empty() {
            errors.insert(index, found);
        }
        functions.insert(index, rows);
        used.insert(index, (renderer.records.clone(), renderer.globals.clone(), renderer.helpers.clone()));
    }
    // What each kernel reaches.
    let reach = |kernel: usize| {
        let (mut seen, mut open) = (BTreeSet::from([kernel]), vec![kernel]);
        while let Some(index) = open.pop() {
            for callee in program.instances[index].calls.values() {
                if seen.insert(*callee) {
                    open.push(*callee);
                }
            }
        }
        seen
    };
    let closures: BTreeMap<usize, BTreeSet<usize>> =
        kernels.iter().map(|kernel| (*kernel, reach(*kernel))).collect();
    let mut broken: BTreeSet<usize> = BTreeSet::new();
    let mut places: BTreeSet<(usize, String)> = BTreeSet::new();
    let mut records: BTreeMap<u64, Vec<render::Row>> = BTreeMap::new();
    let mut globals: BTreeMap<u64, Vec<render::Row>> = BTreeMap::new();
    let mut order: Vec<Part> = Vec::new();
    let mut helpers: Vec<&'static str> = Vec::new();
    for (kernel, closure) in &closures {
        let mut found: Vec<(usize, String)> =
            closure.iter().filter_map(|index| errors.get(index)).flatten().cloned().collect();
        for index in closure {
            let (its_records, its_globals, _) = &used[index];
            for id in its_records {
                if let std::collections::btree_map::Entry::Vacant(entry) = records.entry(*id) {
                    let (rows, wrong) = renderer.record_rows(*id);
                    found.extend(wrong);
                    let record = program.names.records.get(id).map(|record| record.node);
                    found.extend(record.into_iter().flat_map(|node| errors_of_record(node, syntax)));
                    entry.insert(rows);
                }
            }
            for id in its_globals {
                if let std::collections::btree_map::Entry::Vacant(entry) = globals.entry(*id) {
                    let global = renderer.global_rows(*id);
                    found.extend(global.errors);
                    let node = program.names.nodes.get(id).copied();
                    found.extend(node.into_iter().flat_map(|node| errors_in(node, syntax)));
                    entry.insert(global.rows);
                }
            }
        }
        if !found.is_empty() {
            broken.insert(*kernel);
            places.extend(found);
        }
    }
    let good: Vec<usize> = kernels.iter().copied().filter(|kernel| !broken.contains(kernel)).collect();
    let kept: BTreeSet<usize> = good.iter().flat_map(|kernel| closures[kernel].iter().copied()).collect();
    let mut written: BTreeSet<u64> = BTreeSet::new();
    for index in &kept {
        let (its_records, its_globals, its_helpers) = &used[index];
        for id in its_records.iter().filter(|id| records.contains_key(id)) {
            if written.insert(*id) {
                order.push(Part { rows: records[id].clone() });
            }
        }
        for id in its_globals.iter().filter(|id| globals.contains_key(id)) {
            if written.insert(*id) {
                order.push(Part { rows: globals[id].clone() });
            }
        }
        for helper in its_helpers {
            if !helpers.contains(helper) {
                helpers.push(helper);
            }
        }
    }
    for index in &kept {
        order.push(Part { rows: functions[index].clone() });
    }
    let msl = Lines::write(text, program, options.lines, &helpers, &renderer.includes, &order);
    let name = |index: &usize| program.instances[*index].name.clone();
    let differences = renderer.notes.differences.clone();
    Translation {
        msl,
        kernels: good
            .iter()
            .map(|index| {
                let name = name(index);
                let arguments = renderer.notes.kernels.get(&name).cloned().unwrap_or_default();
                Kernel { name, arguments, group_size: None }
            })
            .collect(),
        refused: broken.iter().map(name).collect(),
        errors: places.into_iter().map(|(at, message)| diagnostic(source, text, at, &message)).collect(),
        functions: renderer.notes.functions.clone(),
        renamed: renderer.notes.renamed.clone(),
        differences,
        templates: Vec::new(),
        host: stub,
    }
}

fn diagnostic(source: &Source, text: &Text, at: usize, message: &str) -> Diagnostic {
    let place = text.location(at);
    let file = source.files.iter().find(|file| file.name == place.file);
    let original = file.map(|file| file.text.clone()).or_else(|| std::fs::read_to_string(&place.file).ok());
    let line =
        original.and_then(|text| text.lines().nth((place.line as usize).checked_sub(1)?).map(str::to_owned));
    let column = line.as_deref().map_or(place.column, |line| column(text, at, place.column, line));
    let mut error = Diagnostic::error(&place.file, place.line, column, message);
    error.source_line = line;
    error
}

/// The column of an offset in the original line, whose macros are expanded in the text: that of the same word.
fn column(text: &Text, at: usize, column: u32, original: &str) -> u32 {
    let start = at.saturating_sub(column as usize - 1);
    let rest = text.text.get(start..).unwrap_or("");
    let expanded = rest.split('\n').next().unwrap_or("");
    let places = |line: &str, word: &str| -> Vec<usize> {
        let tokens = crate::opencl::text::tokens(line, 0).filter(|(_, token)| *token == word);
        tokens.map(|(place, _)| place).collect()
    };
    let Some((_, word)) = crate::opencl::text::tokens(expanded, 0).find(|(place, _)| start + place == at)
    else {
        return 1;
    };
    let index = places(expanded, word).iter().position(|place| start + place == at).unwrap_or(0);
    let found = places(original, word).get(index).copied().unwrap_or(0);
    u32::try_from(found).unwrap_or(0) + 1
}

/// Words in the first argument of `cudaMemcpyToSymbol` and other functions that take a variable of the device.
fn host_symbols(source: &Source) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in &source.files {
        for function in ["ToSymbol", "ToSymbolAsync", "GetSymbolAddress"] {
            for (at, _) in file.text.match_indices(function) {
                let Some(rest) = file.text[at + function.len()..].trim_start().strip_prefix('(') else {
                    continue;
                };
                let argument = rest.split([',', ';']).nth(usize::from(function == "GetSymbolAddress"));
                let words = argument.unwrap_or("").split(|c: char| !(c.is_alphanumeric() || c == '_'));
                found.extend(words.map(str::to_owned));
            }
        }
    }
    found
}
