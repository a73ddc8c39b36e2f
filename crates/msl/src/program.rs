//! A checked source: its kernels, and the IR of each on request.

use std::collections::{BTreeSet, HashMap};

use elinvar_driver::{
    Constant, Diagnostic, ElementType, FunctionConstant, MathMode, Severity, Signature, Source,
    UnsupportedKernel,
};

use crate::clang::InductionVariables;
use crate::clang::pch;
use crate::clang::source_header::{self, SourceHeaders};
use crate::clang::toolchain::Toolchain;
use crate::diagnostics::address_spaces;
use crate::ir::entries::Entries;
use crate::ir::recursion::{self, Recursion};
use crate::ir::{address_spaces as pointers, function_pointers, inlining};
use crate::optimizer::{self, Emitted, Interface, Optimizer, Rejection};
use crate::preprocess::Preprocessed;
use crate::preprocess::dependencies::Dependencies;
use crate::preprocess::source_map::SourceMap;
use crate::reflection::tables;
use crate::reflection::tables::PassedBy;
use crate::reflection::{self, Outcome};
use crate::rewrite::AddressSpaces;
use crate::rewrite::Rewritten;
use crate::rewrite::buffer::RewriteBuffer;
use crate::rewrite::dispatch::Overload;
use crate::rewrite::function_constants::{self, FunctionConstantDecl};
use crate::rewrite::glue;
use crate::rewrite::instantiations;
use crate::rewrite::kernels::{Kernel, Param};
use crate::rewrite::struct_attributes::AttributedStruct;
use crate::{Error, Result, clang, diagnostics, preprocess, rewrite, stage};

/// Largest index of a function constant (MSL specification, program scope function constants).
const LAST_CONSTANT: u32 = 65535;

/// A source that has passed all checks.
#[derive(Debug)]
pub struct Program {
    toolchain: Toolchain,
    math: MathMode,
    source_map: SourceMap,
    dependencies: Option<Dependencies>,
    text: RewriteBuffer,
    /// Precompiled headers of `text`.
    headers: SourceHeaders,
    kernels: Vec<Kernel>,
    /// The functions that are overloaded on address spaces only.
    overloads: Vec<Overload>,
    signatures: Vec<Signature>,
    constants: Vec<FunctionConstant>,
    unsupported: Vec<UnsupportedKernel>,
    warnings: Vec<Diagnostic>,
}

impl Program {
    /// Check a source and read its kernels' signatures. Two runs of clang.
    ///
    /// # Errors
    /// `Compile` with the diagnostics of a wrong source; `Clang` or `Io` when clang fails.
    pub fn compile(toolchain: &Toolchain, source: &Source) -> Result<Self> {
        let _for_all_runs = toolchain.headers()?;
        let header = || pch::header(toolchain, source.math);
        let (preprocessed, header) = stage::join(|| preprocess::run(toolchain, source), header);
        let Preprocessed { source_map, mut warnings, dependencies } = preprocessed?;
        header?;
        let mut rewritten =
            stage::timed("rewrite", || rewrite::rewrite(source_map.text(), AddressSpaces::Erased));
        let errors: Vec<Diagnostic> =
            rewritten.errors.iter().map(|(offset, message)| located(&source_map, *offset, message)).collect();
        let indistinct = rewritten.indistinct.iter().map(|overload| indistinct(&source_map, *overload));
        let errors: Vec<Diagnostic> = errors.into_iter().chain(indistinct).collect();
        if !errors.is_empty() {
            return Err(Error::Compile(errors));
        }
        warnings.extend(
            rewritten.warnings.iter().map(|(offset, message)| warning(&source_map, *offset, message)),
        );
        let selected = select_templates(toolchain, source.math, &source_map, &rewritten)?;
        let errors = instantiations::complete(&mut rewritten.kernels, &rewritten.templates, &selected);
        if !errors.is_empty() {
            let errors = errors.iter().map(|(offset, message)| located(&source_map, *offset, message));
            return Err(Error::Compile(errors.collect()));
        }
        let mut text = rewritten.text.clone();
        text.prepend(&function_constants::unspecialized_definitions(rewritten.constants.len()));
        text.prepend(glue::ALL_KERNELS);
        glue::tables(&mut text, &rewritten.kernels);
        glue::constant_tables(&mut text, &rewritten.constants);
        glue::member_tables(&mut text, &rewritten.structs);
        let check = || stage::timed("check", || clang::check(toolchain, source.math, text.text()));
        let spaces =
            || check_spaces(toolchain, source.math, &source_map).or_else(|error| unchecked(source, error));
        let (output, spaces) = match source.check_spaces {
            true => stage::join(check, spaces),
            false => (check(), Ok(Vec::new())),
        };
        let output = output?;
        warnings.extend(check_diagnostics(&output, &source_map, &text)?);
        warnings.extend(spaces?);

        let mut program = Self {
            toolchain: toolchain.clone(),
            math: source.math,
            source_map,
            dependencies,
            text: rewritten.text,
            headers: SourceHeaders::default(),
            kernels: Vec::new(),
            overloads: rewritten.overloads,
            signatures: Vec::new(),
            constants: Vec::new(),
            unsupported: Vec::new(),
            warnings,
        };
        let ir = String::from_utf8_lossy(&output.stdout);
        program.read_constants(&rewritten.constants, &ir)?;
        program.read_kernels(rewritten.kernels, &rewritten.structs, &rewritten.functions, &ir)?;
        Ok(program)
    }

    fn read_kernels(
        &mut self,
        kernels: Vec<Kernel>,
        structs: &[AttributedStruct],
        functions: &[String],
        ir: &str,
    ) -> Result<()> {
        let mut errors = Vec::new();
        let tables = tables::read(ir);
        let types = tables::read_members(ir);
        let structs = reflection::Structs { structs, types: &types, functions };
        let mut names = std::collections::HashSet::new();
        for (i, mut kernel) in kernels.into_iter().enumerate() {
            let missing = || Error::Io(format!("clang's output has no table of kernel `{}`", kernel.name));
            let table = tables.get(&i).ok_or_else(missing)?;
            if !names.insert(kernel.name.clone()) {
                let message = format!("there are two kernels named `{}`", kernel.name);
                errors.push(located(&self.source_map, kernel.offset, &message));
                continue;
            }
            for (param, d) in kernel.params.iter_mut().zip(&table.parameters) {
                param.has_members =
                    param.attributes.is_empty() && d.passed == PassedBy::Value && d.members.is_some();
            }
            match reflection::build(&kernel, table, &structs, &self.source_map) {
                Outcome::Supported(signature) => {
                    self.signatures.push(signature);
                    self.kernels.push(kernel);
                }
                Outcome::Unsupported(reason) => {
                    self.unsupported.push(UnsupportedKernel { name: kernel.name, reason });
                }
                Outcome::Invalid(found) => {
                    errors.extend(found.into_iter().filter(|d| !errors.contains(d)).collect::<Vec<_>>())
                }
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(Error::Compile(errors)) }
    }

    fn read_constants(&mut self, declared: &[FunctionConstantDecl], ir: &str) -> Result<()> {
        let mut errors = Vec::new();
        let mut tables = tables::read_constants(ir);
        for (k, constant) in declared.iter().enumerate() {
            let name = constant.path.clone();
            let missing = || Error::Io(format!("clang's output has no table of function constant `{name}`"));
            let (description, index) = tables.remove(&k).ok_or_else(missing)?;
            let ty = description.element;
            let mut refuse = |why: String| {
                errors.push(located(
                    &self.source_map,
                    constant.offset,
                    &format!("function constant `{name}` {why}"),
                ));
            };
            if !matches!(ty, ElementType::Scalar(_) | ElementType::Vector { packed: false, .. }) {
                refuse(format!("has type `{ty}`; it must be a scalar or a vector"));
            }
            match u32::try_from(index).ok().filter(|index| *index <= LAST_CONSTANT) {
                Some(index) => {
                    if let Some(other) = self.constants.iter().find(|other| other.index == index) {
                        refuse(format!("has index {index}, already used by `{}`", other.name));
                    }
                    self.constants.push(FunctionConstant { name, index, ty });
                }
                None => refuse(format!("has index {index}; it must be 0 to {LAST_CONSTANT}")),
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(Error::Compile(errors)) }
    }

    /// What each kernel takes, in source order, including arguments conditional on function constants.
    pub fn kernels(&self) -> &[Signature] {
        &self.signatures
    }

    /// Valid kernels that are not supported, in source order.
    pub fn unsupported(&self) -> &[UnsupportedKernel] {
        &self.unsupported
    }

    /// The function constants, in source order.
    pub fn constants(&self) -> &[FunctionConstant] {
        &self.constants
    }

    /// The files that the source depends on; `None` if it depends on anything else.
    pub(crate) fn dependencies(&self) -> Option<&Dependencies> {
        self.dependencies.as_ref()
    }

    /// Warnings.
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }

    /// The IR of [`Program::specialize`] without function constants.
    ///
    /// # Errors
    /// As [`Program::specialize`].
    pub fn ir(&self, kernel: &str) -> Result<String> {
        self.specialize(kernel, &[]).map(|specialized| specialized.ir)
    }

    /// Compile one kernel with values of function constants. Two runs of clang.
    ///
    /// # Errors
    /// `NoKernel`; `Constant` for a constant that is unknown, has another type, or is needed and not given; `Unsupported` with
    /// the parameter; `Compile`; `Clang`; `Io`.
    pub fn specialize(&self, kernel: &str, constants: &[Constant]) -> Result<Specialized> {
        self.specialize_with(kernel, constants, InductionVariables::default())
    }

    /// [`Program::specialize`] with induction variables of this width.
    ///
    /// # Errors
    /// As [`Program::specialize`].
    pub fn specialize_with(
        &self,
        kernel: &str,
        constants: &[Constant],
        induction_variables: InductionVariables,
    ) -> Result<Specialized> {
        let emitted = self.emit(kernel, constants)?;
        emitted.optimize(&self.toolchain, induction_variables).map_err(|why| self.rejected(kernel, why))
    }

    /// Compile one kernel with values of function constants, without optimization. One run of clang.
    ///
    /// # Errors
    /// As [`Program::specialize`].
    pub(crate) fn emit(&self, kernel: &str, constants: &[Constant]) -> Result<Emitted> {
        let (found, signature) = self.find(kernel)?;
        let values = function_constants::values(&self.constants, constants)?;
        let ir = self.emit_unoptimized(&[(found, String::new())], &values)?;
        let interface = interface(found, signature);
        Ok(Emitted { ir, interface, has_overloads: !self.overloads.is_empty() })
    }

    /// Compile several kernels with the same values of function constants, as [`Program::specialize_with`] does each. Two runs of clang,
    /// unless one fails for a kernel, or functions remain that have to be inlined, or that several kernels call and that might be inlined,
    /// or inlined earlier, if they had one caller: such kernels are compiled separately.
    pub fn specialize_all(
        &self,
        kernels: &[&str],
        constants: &[Constant],
        induction_variables: InductionVariables,
    ) -> Vec<Result<Specialized>> {
        let alone = |kernel: &&str| self.specialize_with(kernel, constants, induction_variables);
        if kernels.len() < 2 {
            return kernels.iter().map(alone).collect();
        }
        let together = || {
            let found = kernels.iter().map(|kernel| self.find(kernel)).collect::<Result<Vec<_>>>()?;
            let values = function_constants::values(&self.constants, constants)?;
            let written =
                self.emit_unoptimized(&numbered(found.iter().map(|(kernel, _)| *kernel)), &values)?;
            let (marked, different) = inlining::inline_single_calls(&written);
            let optimized = self.optimizer().optimize_marked(&marked, induction_variables);
            let ir = optimized.map_err(|why| self.rejected("", why))?;
            let different: BTreeSet<String> = different.into_iter().map(str::to_owned).collect();
            Ok::<_, Error>((found, ir, different))
        };
        let Ok((found, ir, different)) = together() else { return kernels.iter().map(alone).collect() };
        let entries = Entries::new(&ir);
        let shared = entries.share_functions(kernels.len());
        let found = kernels.iter().zip(found).zip(shared).enumerate();
        let specialized = found.map(|(number, ((name, (kernel, signature)), shared))| {
            let ir = entries.alone(number);
            let incomplete = function_constants::undefined(&ir).is_some();
            let separately = shared
                || different.contains(&format!("{}_{number}", glue::ENTRY))
                || pointers::asks(&ir)
                || recursion::find(&ir).is_some()
                || !incomplete && !inlining::required(&ir).is_empty();
            if separately {
                return alone(name);
            }
            interface(kernel, signature).with_code(ir).map_err(|why| self.rejected(name, why))
        });
        specialized.collect()
    }

    /// The unoptimized IR of one kernel, as a reference: no call is inlined, and variables are in memory. For kernels that need
    /// no function constant. One run of clang.
    ///
    /// # Errors
    /// `NoKernel`, `Unsupported` with the parameter, `Clang`, `Io`.
    pub fn ir_unoptimized(&self, kernel: &str) -> Result<String> {
        let (found, _) = self.find(kernel)?;
        let ir = self.emit_unoptimized(&[(found, String::new())], &vec![None; self.constants.len()])?;
        Ok(tables::extract(ir, glue::PRESENT).1)
    }

    /// Compile several kernels to one module, each as [`Program::ir`] and [`Program::ir_unoptimized`] do, with entries numbered by the
    /// index in `kernels`. For kernels that need no function constant. Two runs of clang.
    ///
    /// # Errors
    /// `NoKernel`, `Constant` when a parameter depends on a function constant, `Unsupported` with the parameter, `Clang`, `Io`.
    pub fn combine(&self, kernels: &[&str]) -> Result<CombinedModule> {
        let found = kernels.iter().map(|name| Ok(self.find(name)?.0)).collect::<Result<Vec<_>>>()?;
        for kernel in &found {
            if let Some(param) = kernel.params.iter().find(|param| param.condition().is_some()) {
                return Err(self.unresolved_condition(kernel, param));
            }
        }
        let unoptimized =
            self.emit_unoptimized(&numbered(found.into_iter()), &vec![None; self.constants.len()])?;
        let optimized = self.optimizer().inlined(&unoptimized, InductionVariables::default());
        let optimized = optimized.and_then(|ir| optimizer::expect_overloads(&ir).map(|()| ir));
        let optimized = optimized.map_err(|why| self.rejected(&kernels.join("`, `"), why))?;
        Ok(CombinedModule { unoptimized, optimized })
    }

    /// Compile kernels to unoptimized IR, with these suffixes of their entries' names.
    fn emit_unoptimized(&self, entries: &[(&Kernel, String)], values: &[Option<String>]) -> Result<String> {
        let mut text = self.text.clone();
        let definitions = function_constants::definitions(values);
        text.prepend(&definitions);
        text.prepend(glue::KERNELS_IN_USE);
        let body = text.text().len();
        for (kernel, suffix) in entries {
            glue::entry(&mut text, kernel, suffix, !self.overloads.is_empty());
        }
        let (body, written) = text.text().split_at(body);
        let headers = self.toolchain.headers()?;
        let flags = clang::entry_flags(&headers, self.math);
        let make = || source_header::make(&self.toolchain, self.math, body);
        if let Some(header) = self.headers.get(&definitions, make)? {
            let compile = || source_header::compile(&self.toolchain, &flags, &header.path(), written);
            let output = stage::timed("entry", compile)?;
            // Diagnostics are those of the source as text.
            if output.success && output.stderr.is_empty() {
                return output.text().map(function_pointers::devirtualize);
            }
        }
        let compile = || clang::compile_with_declarations(&self.toolchain, &flags, self.math, text.text());
        let output = stage::timed("entry", compile)?;
        check_diagnostics(&output, &self.source_map, &text)?;
        output.text().map(function_pointers::devirtualize)
    }

    fn find(&self, kernel: &str) -> Result<(&Kernel, &Signature)> {
        if let Some(i) = self.kernels.iter().position(|k| k.name == kernel) {
            return Ok((&self.kernels[i], &self.signatures[i]));
        }
        if let Some(UnsupportedKernel { reason, .. }) = self.unsupported.iter().find(|k| k.name == kernel) {
            return Err(Error::Unsupported(format!("{}:{}: {}", reason.file, reason.line, reason.message)));
        }
        let known = self.signatures.iter().map(|s| s.name.clone()).collect();
        Err(Error::NoKernel { name: kernel.to_owned(), known })
    }

    fn optimizer(&self) -> Optimizer<'_> {
        Optimizer { toolchain: &self.toolchain, has_overloads: !self.overloads.is_empty() }
    }

    /// The error for a kernel that is rejected.
    pub(crate) fn rejected(&self, kernel: &str, why: Rejection) -> Error {
        match why {
            Rejection::Other(error) => error,
            Rejection::Constant(number) => {
                let Some(missing) = self.constants.get(number) else { return wrong_number() };
                Error::Constant(format!(
                    "kernel `{kernel}` needs a value for function constant `{}` (index {}, {})",
                    missing.name, missing.index, missing.ty
                ))
            }
            Rejection::Condition(argument) => {
                let found = self.kernels.iter().find(|known| known.name == kernel);
                let mut params =
                    found.iter().flat_map(|kernel| &kernel.params).filter(|param| glue::is_launch_argument(param));
                let condition = found.zip(params.nth(argument));
                condition.map_or_else(wrong_number, |(kernel, param)| self.unresolved_condition(kernel, param))
            }
            Rejection::Overload(number, space) => {
                let Some(overload) = self.overloads.get(number) else { return wrong_number() };
                let other = self.source_map.location(overload.second);
                let message = format!(
                    "this overload is chosen for a pointer to `{space}` memory, where Metal chooses another one, such as that at \
                     {}:{}:{}; types have no address spaces here; give them different names",
                    other.file, other.line, other.column
                );
                Error::Compile(vec![located(&self.source_map, overload.first, &message)])
            }
            Rejection::Calls(number) => {
                let Some(overload) = self.overloads.get(number) else { return wrong_number() };
                let other = self.source_map.location(overload.second);
                let message = format!(
                    "this function and that at {}:{}:{} differ only by address spaces, and kernel `{kernel}` has a call for which \
                     the address space is not known at compile time, such as of a pointer that it loads from a buffer; give them \
                     different names",
                    other.file, other.line, other.column
                );
                Error::Compile(vec![located(&self.source_map, overload.first, &message)])
            }
            Rejection::Recursion(Recursion { name, file, line }) => self.error_in_line(
                file,
                line,
                format!(
                    "function `{name}` calls itself, to a depth that constants do not limit to {}; such recursion is not \
                     supported (kernel `{kernel}`)",
                    recursion::LEVELS
                ),
            ),
            Rejection::Initializer(file, line) => {
                let message = "the initializer of this variable at program scope is not a constant expression";
                self.error_in_line(file, line, message.to_owned())
            }
        }
    }

    fn error_in_line(&self, file: String, line: u32, message: String) -> Error {
        let source_line = self.source_map.source_line(&file, line);
        Error::Compile(vec![Diagnostic { source_line, ..Diagnostic::error(file, line, 0, message) }])
    }

    /// The error for a parameter whose condition is not a constant.
    fn unresolved_condition(&self, kernel: &Kernel, param: &Param) -> Error {
        let condition = param.condition().and_then(|c| c.argument.as_deref()).unwrap_or_default();
        Error::Constant(format!(
            "kernel `{}`: argument `{}` depends on `{condition}`, which has no value; of function constants, {}",
            kernel.name,
            param.name,
            function_constants::list(&self.constants)
        ))
    }
}

/// A kernel specialized for values of function constants.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Specialized {
    /// LLVM IR text: a module that defines [`crate::ENTRY`] with one pointer per entry of [`Signature::args`], in that order.
    pub ir: String,
    /// What the kernel takes, without absent arguments.
    pub signature: Signature,
}

/// A module with several kernels; see [`Program::combine`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CombinedModule {
    unoptimized: String,
    optimized: String,
}

impl CombinedModule {
    /// The entries in unoptimized IR.
    pub fn unoptimized(&self) -> Entries<'_> {
        Entries::new(&self.unoptimized)
    }

    /// The entries in optimized IR.
    pub fn optimized(&self) -> Entries<'_> {
        Entries::new(&self.optimized)
    }
}

fn interface(kernel: &Kernel, signature: &Signature) -> Interface {
    let arguments = kernel.params.iter().filter(|param| glue::is_launch_argument(param));
    let conditional = arguments.map(|param| param.condition().is_some()).collect();
    Interface { signature: signature.clone(), conditional }
}

fn wrong_number() -> Error {
    Error::Io("clang's output has a wrong number".to_owned())
}

/// Kernels with suffixes for [`Entries`].
fn numbered<'a>(kernels: impl Iterator<Item = &'a Kernel>) -> Vec<(&'a Kernel, String)> {
    kernels.enumerate().map(|(number, kernel)| (kernel, format!("_{number}"))).collect()
}

/// The templates of instantiations whose name several templates have, by the kernel's index. One run of clang if there are any.
fn select_templates(
    toolchain: &Toolchain,
    math: MathMode,
    source_map: &SourceMap,
    rewritten: &Rewritten,
) -> Result<HashMap<usize, usize>> {
    if !instantiations::ambiguous(&rewritten.kernels) {
        return Ok(HashMap::new());
    }
    let mut text = rewritten.text.clone();
    text.prepend(&function_constants::unspecialized_definitions(rewritten.constants.len()));
    text.prepend(glue::ANNOTATED_TEMPLATES);
    glue::selections(&mut text, &rewritten.kernels);
    let output = stage::timed("select", || clang::check(toolchain, math, text.text()))?;
    check_diagnostics(&output, source_map, &text)?;
    Ok(tables::read_selections(&String::from_utf8_lossy(&output.stdout)))
}

/// Warnings about address spaces.
fn check_spaces(toolchain: &Toolchain, math: MathMode, source_map: &SourceMap) -> Result<Vec<Diagnostic>> {
    let rewritten = rewrite::rewrite(source_map.text(), AddressSpaces::Annotated);
    let mut text = rewritten.text;
    text.prepend(&function_constants::unspecialized_definitions(rewritten.constants.len()));
    text.prepend(glue::ALL_KERNELS);
    text.prepend(address_spaces::DEFINITIONS);
    let output = stage::timed("spaces", || clang::check_spaces(toolchain, math, text.text()))?;
    let own = |m: &diagnostics::ClangDiagnostic| m.file == "<stdin>";
    let messages = diagnostics::parse(&output.stderr);
    if !output.success && messages.is_empty() {
        return Err(output.unexplained_failure());
    }
    let messages = address_spaces::mismatches(messages, own);
    let mut found: Vec<Diagnostic> =
        rewritten.warnings.iter().map(|(offset, message)| warning(source_map, *offset, message)).collect();
    found.extend(diagnostics::resolve(messages, &|m| diagnostics::rewritten_location(source_map, &text, m)));
    found.sort_by_key(|d| (d.file.clone(), d.line, d.column));
    Ok(found)
}

/// A crash of clang in this check does not make the source wrong.
fn unchecked(source: &Source, error: Error) -> Result<Vec<Diagnostic>> {
    let Error::Clang { .. } = error else { return Err(error) };
    let file = source.files.first().map(|file| file.name.clone()).unwrap_or_default();
    let message = format!("cannot check address spaces: {error}");
    Ok(vec![Diagnostic { severity: Severity::Warning, ..Diagnostic::error(file, 0, 0, message) }])
}

/// The warnings of a run over rewritten text, or its errors.
fn check_diagnostics(
    output: &clang::Output,
    source_map: &SourceMap,
    text: &RewriteBuffer,
) -> Result<Vec<Diagnostic>> {
    let messages = diagnostics::without_glue(diagnostics::parse(&output.stderr), text);
    let found = diagnostics::resolve(messages, &|m| diagnostics::rewritten_location(source_map, text, m));
    if found.iter().any(|d| d.severity == Severity::Error) {
        return Err(Error::Compile(found));
    }
    if !output.success {
        return Err(output.unexplained_failure());
    }
    Ok(found)
}

fn indistinct(source_map: &SourceMap, overload: Overload) -> Diagnostic {
    let first = source_map.location(overload.first);
    let message = format!(
        "this and the declaration at {}:{}:{} differ by address spaces, which are not part of types here; give it another name",
        first.file, first.line, first.column
    );
    located(source_map, overload.second, &message)
}

fn warning(source_map: &SourceMap, offset: usize, message: &str) -> Diagnostic {
    Diagnostic { severity: Severity::Warning, ..located(source_map, offset, message) }
}

fn located(source_map: &SourceMap, offset: usize, message: &str) -> Diagnostic {
    let p = source_map.location(offset);
    Diagnostic { source_line: p.source_line, ..Diagnostic::error(p.file, p.line, p.column, message) }
}
