//! Assembles the output module: the function with the globals and callees that it uses. Attributes and metadata of the input are
//! dropped: they apply to one thread's code on the front end's target.

use std::collections::BTreeMap;

use elinvar_ir::{Const, Function, Module, Op, Operand};

use super::{gather_scatter, matrix_product};
use crate::Error;
use crate::analysis::stack_usage;
use crate::kernel::Kernel;
use crate::support::constants::mentions;
use crate::support::declarations::declaration;
use crate::support::ir::callee_name;
use crate::transform::bounds::RECORD;
use crate::transform::lower_scale;

/// The module with `function` and everything that it references. `scalef` is [`Options::scalef`](crate::Options::scalef).
pub(crate) fn module(
    input: &Module,
    kernel: &Kernel,
    function: Function,
    scalef: bool,
) -> Result<Module, Error> {
    let mut output = Module {
        data_layout: input.data_layout.clone(),
        triple: input.triple.clone(),
        types: input.types.clone(),
        attributes: input.attributes.clone(),
        ..Module::default()
    };
    output.functions.push(function);
    for mut callee in kernel.callees.iter().cloned() {
        callee.linkage = "internal".into();
        if callee.name != RECORD {
            callee.suffix = String::new();
        }
        output.functions.push(callee);
    }
    output.functions.iter_mut().for_each(strip);
    if scalef {
        lower_scale::share(&mut output);
    }
    add_shared(&mut output);
    for function in &mut output.functions {
        let space = if function.suffix.is_empty() { "" } else { " " };
        function.suffix.push_str(&format!("{space}{}", stack_usage::PROBES));
    }
    add_declarations(input, &mut output);
    add_globals(input, &mut output)?;
    Ok(output)
}

/// Removes references to metadata.
fn strip(function: &mut Function) {
    function.metadata.clear();
    for block in &mut function.blocks {
        block.term_metadata.clear();
        for inst in &mut block.insts {
            inst.metadata.clear();
        }
    }
}

/// Defines the shared functions that are called: gathers, scatters, products of matrices.
fn add_shared(output: &mut Module) {
    let mut found = BTreeMap::new();
    for inst in output.functions.iter().flat_map(|f| &f.blocks).flat_map(|b| &b.insts) {
        if let Op::Call(call) = &inst.op
            && let Some(name) = callee_name(call)
            && let Some(vector) =
                call.args.first().map(|a| if inst.result.is_some() { &call.ret } else { &a.ty })
            && !found.contains_key(name)
            && let Some(function) = gather_scatter::definition(name, vector)
                .or_else(|| matrix_product::definition(name))
                .or_else(|| lower_scale::definition(name))
        {
            found.insert(name.to_owned(), function);
        }
    }
    output.functions.extend(found.into_values());
}

fn add_declarations(input: &Module, output: &mut Module) {
    let mut called: BTreeMap<String, &elinvar_ir::Call> = BTreeMap::new();
    for inst in output.functions.iter().flat_map(|f| &f.blocks).flat_map(|b| &b.insts) {
        if let Op::Call(call) = &inst.op
            && let Some(name) = callee_name(call)
        {
            called.insert(name.to_owned(), call);
        }
    }
    let mut declarations = Vec::new();
    for (name, call) in called {
        match input.function(&name) {
            Some(f) if f.is_declaration() => {
                declarations.push(Function { metadata: Vec::new(), ..f.clone() });
            }
            Some(_) => {}
            None if name.starts_with("llvm.") => declarations.push(declaration(&name, call)),
            None => {}
        }
    }
    output.functions.extend(declarations);
}

/// Adds the globals that the functions reference, transitively.
fn add_globals(input: &Module, output: &mut Module) -> Result<(), Error> {
    let named = |constant: &Const, found: &mut Vec<String>| {
        let names = std::cell::RefCell::new(Vec::new());
        mentions(constant, &|name| {
            names.borrow_mut().push(name.to_owned());
            false
        });
        found.extend(names.into_inner());
    };
    let mut todo = Vec::new();
    for block in output.functions.iter().flat_map(|f| &f.blocks) {
        let operands = block.insts.iter().flat_map(|i| i.op.operands()).chain(block.term.operands());
        for operand in operands {
            if let Operand::Const(c) = operand {
                named(c, &mut todo);
            }
        }
    }
    while let Some(name) = todo.pop() {
        if output.global(&name).is_some() {
            continue;
        }
        let Some(global) = input.global(&name) else {
            if output.function(&name).is_some() {
                continue;
            }
            return Err(Error::unsupported(format!("the address of `{name}`"), None));
        };
        let Some(init) = &global.init else {
            let what = format!("the variable `{name}`, which is declared but not defined");
            return Err(Error::unsupported(what, None));
        };
        named(init, &mut todo);
        let mut global = global.clone();
        global.linkage = "internal".into();
        global.suffix = String::new();
        global.section = None;
        global.metadata.clear();
        output.globals.push(global);
    }
    Ok(())
}
