//! OpenCL C 1.2 to MSL.
//!
//! ```text
//! OpenCL C ── clang -E ──> text without macros ── clang -ast-dump=json ──> tree ── render ──> MSL
//! ```
//!
//! The text of a node that means the same in both languages is copied with its comments; `render` writes the others. `program` has the
//! functions and who calls whom; functions that no kernel reaches are left out.

mod ast;
mod builtins;
pub(crate) mod clang;
mod helpers;
pub(crate) mod names;
mod output;
mod program;
mod prune;
mod render;
pub(crate) mod report;
pub(crate) mod text;
mod types;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use elinvar_driver::{Diagnostic, Source};
use elinvar_msl::Toolchain;

use self::ast::Node;
use self::clang::Clang;
use self::output::{Output, Piece};
use self::program::Program;
use self::render::Renderer;
use self::report::{Argument, Notes};
use self::text::{Text, skip_blank, words};
use crate::{Error, Result};

/// How a source is translated.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether `#line` directives name the original lines.
    pub lines: bool,
    /// Only these kernels; all if empty.
    pub kernels: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { lines: true, kernels: Vec::new() }
    }
}

/// A translated kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Its name, the same in both languages unless MSL does not allow it.
    pub name: String,
    /// Its arguments.
    pub arguments: Vec<Argument>,
    /// The threadgroup size that `reqd_work_group_size` demands.
    pub group_size: Option<[u64; 3]>,
}

/// The result of a translation.
#[derive(Clone, Debug)]
pub struct Translation {
    /// The program in MSL, with all kernels that could be translated.
    pub msl: String,
    /// These kernels.
    pub kernels: Vec<Kernel>,
    /// Names of the kernels that could not.
    pub refused: Vec<String>,
    /// Why, each with its place.
    pub errors: Vec<Diagnostic>,
    /// Builtin functions, and what they became.
    pub functions: BTreeMap<String, String>,
    /// Names that MSL does not allow, and what they became.
    pub renamed: BTreeSet<(String, String)>,
    /// What differs in precision or meaning.
    pub differences: BTreeSet<String>,
    /// An instance of each CUDA kernel that is a template without one, as [`CudaOptions::instances`](crate::CudaOptions::instances) takes it.
    pub templates: Vec<String>,
    /// The launches of a CUDA source in Rust, if they were asked for.
    pub host: Option<String>,
}

/// Nesting of the tree needs stack: this much is reserved, and only used by deep sources.
const STACK: usize = 1 << 30;

/// Translates OpenCL C 1.2.
///
/// # Errors
/// `Compile` if the source is not valid OpenCL C; `Environment` if clang cannot be run. Kernels that are valid and cannot be translated are in
/// [`Translation::errors`].
pub fn translate(toolchain: &Toolchain, source: &Source, options: &Options) -> Result<Translation> {
    let clang = Clang::new(toolchain, source)?;
    let text = clang.preprocess()?;
    let tree = clang.tree(&prune::prune(&text.text, &options.kernels))?.json;
    std::thread::scope(|scope| {
        let run = || write(source, &text, &tree, &clang.text_path(), options);
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, run);
        let thread = thread.map_err(|error| Error::Environment(error.to_string()))?;
        thread.join().unwrap_or_else(|_| Err(Error::Environment("the translation has failed".into())))
    })
}

fn write(source: &Source, text: &Text, tree: &[u8], path: &str, options: &Options) -> Result<Translation> {
    let unit = ast::parse(tree, path, &text.text).map_err(|message| {
        let name = source.files.first().map(|file| file.name.clone()).unwrap_or_default();
        Error::Compile(vec![Diagnostic::error(name, 0, 0, message)])
    })?;
    let all_words: HashSet<String> = words(&text.text).map(str::to_owned).collect();
    let program = Program::new(&unit, all_words);
    let mut translator = Translator {
        source,
        text,
        program: &program,
        renderer: Renderer::new(&text.text, &program),
        errors: BTreeMap::new(),
    };
    translator.run(&unit, options)
}

struct Translator<'a> {
    source: &'a Source,
    text: &'a Text,
    program: &'a Program<'a>,
    renderer: Renderer<'a>,
    /// Why functions cannot be translated.
    errors: BTreeMap<usize, Vec<(usize, String)>>,
}

impl Translator<'_> {
    fn run(&mut self, unit: &Node, options: &Options) -> Result<Translation> {
        let kernels: Vec<usize> = (0..self.program.functions.len())
            .filter(|index| self.is_selected(*index, &options.kernels))
            .collect();
        let closures: BTreeMap<usize, BTreeSet<usize>> =
            kernels.iter().map(|kernel| (*kernel, self.program.closure(*kernel))).collect();
        let reachable: BTreeSet<usize> = closures.values().flatten().copied().collect();
        let mut pieces = self.pieces(unit, &reachable);
        let broken = |kernel: &usize| closures[kernel].iter().any(|index| self.errors.contains_key(index));
        let (refused, good): (Vec<usize>, Vec<usize>) = kernels.iter().copied().partition(broken);
        let kept: BTreeSet<usize> = good.iter().flat_map(|kernel| closures[kernel].iter().copied()).collect();
        pieces.retain(|piece| piece.function.is_none_or(|index| kept.contains(&index)));
        let msl = Output {
            text: self.text,
            helpers: &self.renderer.helpers,
            lines: options.lines,
            main: self.main_files(),
        }
        .write(pieces);
        let name = |index: &usize| {
            self.program.functions[*index].definition.map_or(String::new(), |node| node.name.clone())
        };
        let guilty: BTreeSet<usize> =
            refused.iter().flat_map(|kernel| closures[kernel].iter().copied()).collect();
        let mut places: BTreeSet<(usize, &str)> = BTreeSet::new();
        for (_, errors) in self.errors.iter().filter(|(index, _)| guilty.contains(index)) {
            places.extend(errors.iter().map(|(at, message)| (*at, message.as_str())));
        }
        let notes: &Notes = &self.renderer.notes;
        Ok(Translation {
            msl,
            kernels: good
                .iter()
                .map(|index| {
                    let name = name(index);
                    let arguments = notes.kernels.get(&name).cloned().unwrap_or_default();
                    let group_size = notes.group_sizes.get(&name).copied();
                    Kernel { name, arguments, group_size }
                })
                .collect(),
            refused: refused.iter().map(name).collect(),
            errors: places.into_iter().map(|(at, message)| self.diagnostic(at, message)).collect(),
            functions: notes.functions.clone(),
            renamed: notes.renamed.clone(),
            differences: notes.differences.clone(),
            templates: Vec::new(),
            host: None,
        })
    }

    fn is_selected(&self, index: usize, names: &[String]) -> bool {
        let function = &self.program.functions[index];
        let Some(node) = function.definition.filter(|_| function.is_kernel) else { return false };
        names.is_empty() || names.contains(&node.name)
    }

    /// Indices of the source's own files among those of the text.
    fn main_files(&self) -> Vec<usize> {
        let is_own = |name: &String| self.source.files.iter().any(|file| file.name == *name);
        (0..self.text.files.len()).filter(|index| is_own(&self.text.files[*index])).collect()
    }

    /// The declarations at file scope in MSL.
    fn pieces(&mut self, unit: &Node, reachable: &BTreeSet<usize>) -> Vec<Piece> {
        // clang declares the builtin functions that it finds, where they are used. Behind a function, `;` is a declaration.
        let is_own = |node: &&Node| node.kind != "EmptyDecl" && !node.name.starts_with("__builtin_");
        let nodes: Vec<&Node> = unit
            .children
            .iter()
            .filter(|node| node.begin.is_some() && node.end.is_some())
            .filter(is_own)
            .collect();
        let (mut pieces, mut at) = (Vec::new(), 0);
        let mut index = 0;
        while index < nodes.len() {
            let first = nodes[index];
            let begin = first.begin.unwrap_or(0);
            // Declarations of one group, with structs and enums that they define.
            let mut group = vec![first];
            let mut end = first.end.unwrap_or(begin);
            let mut start = begin;
            while let Some(next) = nodes.get(index + group.len()) {
                let from = next.begin.unwrap_or(end);
                if from > end && from != start {
                    break;
                }
                start = start.min(from);
                group.push(next);
                end = end.max(next.end.unwrap_or(end));
            }
            index += group.len();
            let piece = self.piece(&group, at, start, end, reachable);
            at = piece.end;
            pieces.push(piece);
        }
        pieces
    }

    fn piece(
        &mut self,
        group: &[&Node],
        gap: usize,
        begin: usize,
        end: usize,
        reachable: &BTreeSet<usize>,
    ) -> Piece {
        let renderer = &mut self.renderer;
        let last = group[group.len() - 1];
        let function = (last.kind == "FunctionDecl").then(|| self.program.function(last.id)).flatten();
        let skipped = function.is_some_and(|index| !reachable.contains(&index));
        let records: Vec<&Node> = group
            .iter()
            .copied()
            .filter(|node| matches!(node.kind.as_str(), "RecordDecl" | "EnumDecl"))
            .collect();
        let declared: Vec<&Node> = group
            .iter()
            .copied()
            .filter(|node| matches!(node.kind.as_str(), "TypedefDecl" | "VarDecl"))
            .collect();
        let text = match (skipped, last.kind.as_str()) {
            (true, _) => String::new(),
            (_, "FunctionDecl") => {
                let text = renderer.function(last);
                if last.body().is_some() { text } else { text + ";" }
            }
            (_, _) if !declared.is_empty() => renderer.declarators(&records, &declared, false) + ";",
            (_, "RecordDecl") => renderer.record(last) + ";",
            (_, "EnumDecl") => renderer.enumeration(last) + ";",
            // An empty declaration.
            _ => String::new(),
        };
        let is_declaration = last.kind != "FunctionDecl" || last.body().is_none();
        let stop = if is_declaration { renderer.statement_end(end) } else { end };
        let text = renderer.fit(begin, stop, text);
        let errors = std::mem::take(&mut renderer.errors);
        let mut names: Vec<String> = group.iter().map(|node| self.program.names.of(&node.name)).collect();
        for node in group.iter().filter(|node| node.kind == "EnumDecl") {
            names.extend(node.children.iter().map(|constant| self.program.names.of(&constant.name)));
        }
        let is_broken = !errors.is_empty();
        if let Some(index) = function
            && !skipped
        {
            let mut all = errors;
            all.extend(self.program.functions[index].errors.clone());
            if !all.is_empty() {
                self.errors.entry(index).or_default().extend(all);
            }
        }
        Piece {
            gap,
            begin: skip_blank(&self.text.text, begin).min(begin),
            end: stop,
            text: if is_broken && function.is_none() { String::new() } else { text },
            names,
            function,
        }
    }

    fn diagnostic(&self, at: usize, message: &str) -> Diagnostic {
        let place = self.text.location(at);
        let mut error = Diagnostic::error(&place.file, place.line, place.column, message);
        let file = self.source.files.iter().find(|file| file.name == place.file);
        let text = file.map(|file| file.text.clone()).or_else(|| std::fs::read_to_string(&place.file).ok());
        error.source_line =
            text.and_then(|text| text.lines().nth(place.line as usize - 1).map(str::to_owned));
        error
    }
}
