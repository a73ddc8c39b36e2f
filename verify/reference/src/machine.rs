//! State shared by all threads: the module, memory, and the position of the current threadgroup.

use std::collections::HashMap;

use elinvar_ir::{Function, Global, Inst, Module, Operand, Type, Typed};
use elinvar_spmd::THREADGROUP_SECTION;

use crate::Options;
use crate::constant::{self, Globals};
use crate::fault::{Fault, Problem, Result};
use crate::log::LogRecord;
use crate::memory::{Allocation, Memory, Place};
use crate::observe::Access;
use crate::order::Order;
use crate::thread::{Frame, Thread};
use crate::transfer;
use crate::value::{Value, length};

/// Sizes of a launch, and the current threadgroup.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub grid: [u32; 3],
    pub groups: [u32; 3],
    pub full_group: [u32; 3],
    /// Position and size of the current threadgroup.
    pub group: [u32; 3],
    pub group_size: [u32; 3],
}

impl Sizes {
    /// `None` for empty threadgroups.
    pub(crate) fn new(grid: [u32; 3], full_group: [u32; 3]) -> Option<Sizes> {
        if full_group.contains(&0) {
            return None;
        }
        let groups = [0, 1, 2].map(|d| grid[d].div_ceil(full_group[d]));
        Some(Sizes { grid, groups, full_group, group: [0; 3], group_size: full_group })
    }

    /// Moves to the threadgroup with this index, x fastest; returns false after the last. Threadgroups at the edges of the grid are smaller,
    /// unless all are `whole`.
    pub(crate) fn go_to_group(&mut self, index: u64, whole: bool) -> bool {
        let [x, y, z] = self.groups.map(u64::from);
        if index >= x * y * z {
            return false;
        }
        self.group = [index % x, index / x % y, index / x / y].map(|p| p as u32);
        if whole {
            return true;
        }
        let left = |d: usize| self.grid[d] - self.group[d] * self.full_group[d];
        self.group_size = [0, 1, 2].map(|d| left(d).min(self.full_group[d]));
        true
    }
}

pub(crate) struct Machine<'m> {
    pub module: &'m Module,
    pub options: &'m Options,
    pub memory: Memory,
    pub sizes: Sizes,
    pub steps: u64,
    /// Log calls that were executed and not yet passed on.
    pub log: Vec<LogRecord>,
    /// Accesses that were executed and not yet passed on, if they are observed.
    pub accesses: Option<Vec<Access>>,
    functions: HashMap<&'m str, usize>,
    orders: Vec<Option<Order>>,
    addresses: HashMap<&'m str, u64>,
}

impl<'m> Machine<'m> {
    pub(crate) fn new(module: &'m Module, options: &'m Options, sizes: Sizes) -> Result<Machine<'m>> {
        let mut machine = Machine {
            module,
            options,
            memory: Memory::new(),
            sizes,
            steps: 0,
            log: Vec::new(),
            accesses: None,
            functions: HashMap::new(),
            orders: Vec::new(),
            addresses: HashMap::new(),
        };
        for (index, function) in module.functions.iter().enumerate() {
            let order = (!function.is_declaration()).then(|| Order::new(function));
            machine.orders.push(order);
            machine.functions.insert(&function.name, index);
            let target = Allocation { writable: false, ..Allocation::fresh(Place::Function(index), 0, 1) };
            let address = machine.memory.allocate(target)?;
            machine.addresses.insert(&function.name, address);
        }
        machine.place_constants()?;
        Ok(machine)
    }

    fn place_constants(&mut self) -> Result<()> {
        let module = self.module;
        // `llvm.used` and similar variables are lists for linkers.
        let stored = |g: &&Global| !is_threadgroup(g) && g.init.is_some() && !g.name.starts_with("llvm.");
        let constants = || module.globals.iter().filter(stored);
        for global in constants() {
            let what = Place::Constant(global.name.clone());
            self.place_global(global, what)?;
        }
        for global in constants() {
            let Some(init) = &global.init else { continue };
            let value = constant::value(&global.ty, init, module, &*self)?;
            let address = self.address(&global.name)?;
            let len = global.ty.size_align(module).0;
            let (bytes, written) = self.memory.write(address, len, 1)?;
            transfer::store(&global.ty, module, &value, bytes, written)?;
            if global.constant {
                self.memory.seal(address);
            }
        }
        Ok(())
    }

    fn place_global(&mut self, global: &'m Global, what: Place) -> Result<()> {
        let (size, natural) = global.ty.size_align(self.module);
        let align = global.align.unwrap_or(natural);
        let address = self.memory.allocate(Allocation::fresh(what, length(size)?, align))?;
        self.addresses.insert(&global.name, address);
        Ok(())
    }

    /// Allocates threadgroup variables for a new threadgroup.
    pub(crate) fn place_threadgroup_variables(&mut self) -> Result<()> {
        let module = self.module;
        for global in module.globals.iter().filter(|g| is_threadgroup(g)) {
            if let Some(old) = self.addresses.get(global.name.as_str()) {
                self.memory.release(*old);
            }
            self.place_global(global, Place::Threadgroup(global.name.clone()))?;
        }
        Ok(())
    }

    /// Removes the threadgroup variables of a threadgroup that is suspended.
    pub(crate) fn take_threadgroup_variables(&mut self) -> Vec<(&'m str, u64)> {
        let module = self.module;
        let names = module.globals.iter().filter(|g| is_threadgroup(g)).map(|g| g.name.as_str());
        names.filter_map(|name| self.addresses.remove_entry(name)).collect()
    }

    /// Puts back what [`Self::take_threadgroup_variables`] removed.
    pub(crate) fn put_threadgroup_variables(&mut self, variables: Vec<(&'m str, u64)>) {
        for (name, address) in variables {
            if let Some(old) = self.addresses.insert(name, address) {
                self.memory.release(old);
            }
        }
    }

    pub(crate) fn function(&self, index: usize) -> &'m Function {
        &self.module.functions[index]
    }

    /// The index of a function that has a body.
    pub(crate) fn defined(&self, name: &str) -> Option<usize> {
        self.functions.get(name).copied().filter(|i| !self.function(*i).is_declaration())
    }

    pub(crate) fn order(&self, function: usize) -> Result<&Order> {
        let order = self.orders.get(function).and_then(Option::as_ref);
        order.ok_or_else(|| Problem::Malformed("a function without a body runs".into()))
    }

    /// The value of an operand in a call.
    pub(crate) fn operand(&self, frame: &Frame, ty: &Type, operand: &Operand) -> Result<Value> {
        match operand {
            Operand::Value(id) => frame.values[id.0 as usize]
                .clone()
                .ok_or_else(|| Problem::Malformed(format!("value {} is used before it is defined", id.0))),
            Operand::Const(c) => constant::value(ty, c, self.module, self),
        }
    }

    pub(crate) fn typed(&self, frame: &Frame, typed: &Typed) -> Result<Value> {
        self.operand(frame, &typed.ty, &typed.op)
    }

    /// Read a value of a type.
    pub(crate) fn load(&self, ty: &Type, address: u64, align: u64) -> Result<Value> {
        let len = transfer::store_size(ty, self.module)?;
        let (bytes, written) = self.memory.read(address, len, align)?;
        transfer::load(ty, self.module, bytes, written, self.options.uninitialized)
    }

    /// Write a value of a type.
    pub(crate) fn store(&mut self, ty: &Type, value: &Value, address: u64, align: u64) -> Result<()> {
        let len = transfer::store_size(ty, self.module)?;
        let (bytes, written) = self.memory.write(address, len, align)?;
        transfer::store(ty, self.module, value, bytes, written)
    }

    /// A problem at a thread's position, or without a thread.
    pub(crate) fn fault(&self, problem: Problem, thread: Option<&Thread<'_>>) -> Fault {
        let frames = thread.map_or(&[][..], |t| &t.frames);
        let function = frames.last().map_or_else(String::new, |f| self.function(f.function).name.clone());
        Fault {
            problem: Box::new(problem),
            location: frames.iter().rev().find_map(|f| self.location(f)),
            function,
            group: self.sizes.group,
            thread: thread.map(|t| t.position),
        }
    }

    /// Source line of a frame: of its call, except for the innermost frame.
    pub(crate) fn location(&self, frame: &Frame) -> Option<elinvar_ir::Location> {
        let block = self.function(frame.function).block(frame.block);
        let metadata = block.insts.get(frame.inst).map_or(&block.term_metadata, |inst: &Inst| &inst.metadata);
        self.module.location(metadata)
    }
}

impl Globals for Machine<'_> {
    fn address(&self, name: &str) -> Result<u64> {
        let unknown = || Problem::Unsupported(format!("the external variable `{name}`"));
        self.addresses.get(name).copied().ok_or_else(unknown)
    }
}

fn is_threadgroup(global: &Global) -> bool {
    global.section.as_deref() == Some(THREADGROUP_SECTION) || global.linkage.contains("addrspace(3)")
}
