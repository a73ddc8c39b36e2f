//! Checks that a module is well-formed, so that a broken pass is caught before clang sees its output.
//!
//! The verifier checks names, types, constants, the structure of functions, definitions before uses, and the operand types of every
//! instruction. It does not check texts (attributes, flags, metadata), which clang checks.

mod constants;
mod function;
mod instructions;

use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::layout::MAX_NAMED_DEPTH;
use crate::model::{Function, Module, Type};

/// An error in a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyError {
    /// The function it is in; `None` for the module's own.
    pub function: Option<String>,
    /// The block it is in: its name, else its index.
    pub block: Option<String>,
    pub message: String,
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(function) = &self.function {
            write!(f, "function `{function}`, ")?;
        }
        if let Some(block) = &self.block {
            write!(f, "block `{block}`, ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for VerifyError {}

/// Checks a module, and returns all errors in the order of the text.
pub fn verify(module: &Module) -> Result<(), Vec<VerifyError>> {
    let mut errors = Vec::new();
    let mut report = |message: String| errors.push(VerifyError { function: None, block: None, message });
    named_types(module, &mut report);
    let symbols = symbols(module, &mut report);
    if errors.is_empty() {
        let check = Check { module, symbols };
        check.globals(&mut errors);
        for function in &module.functions {
            function::verify(&check, function, &mut errors);
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// Symbols for the checks of functions and constants.
struct Check<'a> {
    module: &'a Module,
    /// Every global and function; `None` for a global.
    symbols: HashMap<&'a str, Option<&'a Function>>,
}

impl Check<'_> {
    fn globals(&self, errors: &mut Vec<VerifyError>) {
        for global in &self.module.globals {
            let mut message = match &global.init {
                _ if !is_sized(&global.ty) => Some(format!("has the type `{}`", global.ty)),
                Some(init) => self.constant(&global.ty, init).err(),
                None => None,
            };
            if let Some(message) = message.take() {
                let message = format!("global `@{}`: {message}", global.name);
                errors.push(VerifyError { function: None, block: None, message });
            }
        }
    }
}

/// Whether values of this type can be kept in memory.
fn is_sized(ty: &Type) -> bool {
    !matches!(ty, Type::Void | Type::Metadata)
}

fn symbols<'a>(
    module: &'a Module,
    report: &mut impl FnMut(String),
) -> HashMap<&'a str, Option<&'a Function>> {
    let globals = module.globals.iter().map(|g| (g.name.as_str(), None));
    let functions = module.functions.iter().map(|f| (f.name.as_str(), Some(f)));
    let mut all = HashMap::new();
    for (name, function) in globals.chain(functions) {
        if name.is_empty() {
            report("a global or function without a name".to_owned());
        }
        if all.insert(name, function).is_some() {
            report(format!("`@{name}` is defined twice"));
        }
    }
    all
}

/// Every named type is defined once, and none contains itself or nests too deep.
fn named_types(module: &Module, report: &mut impl FnMut(String)) {
    let mut definitions = HashMap::new();
    for (name, ty) in &module.types {
        if definitions.insert(name.as_str(), ty.as_ref()).is_some() {
            report(format!("type `%{name}` is defined twice"));
        }
    }
    let mut types = NamedTypes { definitions, known: HashMap::new(), open: HashSet::new() };
    for (name, _) in &module.types {
        if let Err(message) = types.depth(name) {
            return report(message);
        }
    }
    for ty in module.functions.iter().flat_map(|f| f.values.iter().map(|v| &v.ty)) {
        if let Err(message) = types.depth_in(ty) {
            return report(message);
        }
    }
}

struct NamedTypes<'a> {
    definitions: HashMap<&'a str, Option<&'a Type>>,
    /// Nesting depth of each finished type.
    known: HashMap<&'a str, usize>,
    open: HashSet<&'a str>,
}

impl<'a> NamedTypes<'a> {
    fn depth(&mut self, name: &'a str) -> Result<usize, String> {
        if let Some(depth) = self.known.get(name) {
            return Ok(*depth);
        }
        let Some(ty) = self.definitions.get(name) else {
            return Err(format!("type `%{name}` is not defined"));
        };
        let depth = match *ty {
            None => 0,
            Some(_) if !self.open.insert(name) => return Err(format!("type `%{name}` contains itself")),
            Some(_) if self.open.len() > MAX_NAMED_DEPTH => return Err(too_deep(name)),
            Some(ty) => {
                let inner = self.depth_in(ty)?;
                self.open.remove(name);
                inner + 1
            }
        };
        if depth > MAX_NAMED_DEPTH {
            return Err(too_deep(name));
        }
        self.known.insert(name, depth);
        Ok(depth)
    }

    fn depth_in(&mut self, ty: &'a Type) -> Result<usize, String> {
        match ty {
            Type::Named(name) => self.depth(name),
            Type::Vector(_, element) | Type::Array(_, element) => self.depth_in(element),
            Type::Struct { fields, .. } => {
                fields.iter().try_fold(0, |deepest, field| Ok(deepest.max(self.depth_in(field)?)))
            }
            _ => Ok(0),
        }
    }
}

fn too_deep(name: &str) -> String {
    format!("type `%{name}` nests deeper than {MAX_NAMED_DEPTH}")
}
