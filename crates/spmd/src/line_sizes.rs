//! [`line_sizes`]: the size of code by source line, so that growth is seen where it comes from.
//!
//! An instruction of the vectorized function belongs to the line of the instruction that it was emitted for. Loops over threadgroups and
//! vectors, branches, and values that are shared by several lines have no line.

use std::collections::HashMap;

use elinvar_ir::{Attachments, Function, Location, MetadataId, Module};

use crate::vector::pipeline::{self, Code, State};
use crate::{Error, Options, pass};

/// The size of the code of a source line, in instructions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineSize {
    /// The line; `None` for instructions without one.
    pub location: Option<Location>,
    /// Of one thread's code.
    pub scalar: usize,
    /// Of the vectorized function.
    pub vector: usize,
}

/// The sizes of the lines of the entry of `module`, those with the most vectorized instructions first.
///
/// # Errors
/// As [`crate::compile`].
pub fn line_sizes(module: &Module, options: &Options) -> Result<Vec<LineSize>, Error> {
    crate::expect_lanes(options)?;
    let mut state = State::new(module, options);
    pass::run(&pipeline::passes(), &mut state, Some("early-cse"))?;
    let Code::Workgroup(kernel, workgroup) = &state.code else {
        return Err(Error::Malformed("the pipeline ended early".into()));
    };
    let mut lines = Lines { module, known: HashMap::new(), sizes: HashMap::new() };
    for function in module.functions.iter().filter(|function| !function.is_declaration()) {
        lines.count(function, |size| &mut size.0);
    }
    for function in std::iter::once(&workgroup.function).chain(&kernel.callees) {
        lines.count(function, |size| &mut size.1);
    }
    let size = |(line, (scalar, vector)): (Line, (usize, usize))| {
        let location = line.map(|(file, line)| Location { file, line, column: 0 });
        LineSize { location, scalar, vector }
    };
    let mut sizes: Vec<LineSize> = lines.sizes.into_iter().map(size).collect();
    let key = |size: &LineSize| size.location.as_ref().map(|at| (at.file.clone(), at.line));
    sizes.sort_by(|a, b| b.vector.cmp(&a.vector).then_with(|| key(a).cmp(&key(b))));
    Ok(sizes)
}

/// File and line.
type Line = Option<(String, u32)>;

struct Lines<'a> {
    module: &'a Module,
    known: HashMap<MetadataId, Line>,
    /// Scalar and vectorized instructions.
    sizes: HashMap<Line, (usize, usize)>,
}

impl Lines<'_> {
    fn count(&mut self, function: &Function, which: impl Fn(&mut (usize, usize)) -> &mut usize) {
        for block in &function.blocks {
            let insts = block.insts.iter().map(|inst| &inst.metadata);
            for metadata in insts.chain([&block.term_metadata]) {
                let line = self.line(metadata);
                *which(self.sizes.entry(line).or_default()) += 1;
            }
        }
    }

    fn line(&mut self, metadata: &Attachments) -> Line {
        let (_, id) = metadata.iter().find(|(kind, _)| kind == "dbg")?;
        let module = self.module;
        let find = || module.location(metadata).map(|at| (at.file, at.line));
        self.known.entry(*id).or_insert_with(find).clone()
    }
}
