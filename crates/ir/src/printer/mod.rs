//! Writes a module as canonical IR text, in LLVM's order and spelling.
//!
//! Printing what the parser read from clang gives clang's text, except comments and debug records. The
//! printer does not check the module; see [`crate::verify`].

mod constants;
mod instructions;
mod names;

use std::fmt::{self, Display, Formatter};

use constants::{Constant, spaced};
use instructions::{Instruction, Terminator, attachments};
use names::{Escaped, Names, Quoted};

use crate::model::{Function, Global, Module, Param};

impl Display for Module {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.source_filename {
            writeln!(f, "source_filename = \"{}\"", Escaped(name.as_bytes()))?;
        }
        if let Some(layout) = &self.data_layout {
            writeln!(f, "target datalayout = \"{}\"", Escaped(layout.as_bytes()))?;
        }
        if let Some(triple) = &self.triple {
            writeln!(f, "target triple = \"{}\"", Escaped(triple.as_bytes()))?;
        }
        for (name, ty) in &self.types {
            match ty {
                Some(ty) => writeln!(f, "%{} = type {ty}", Quoted(name))?,
                None => writeln!(f, "%{} = type opaque", Quoted(name))?,
            }
        }
        for (name, kind) in &self.comdats {
            writeln!(f, "${} = comdat {kind}", Quoted(name))?;
        }
        for global in &self.globals {
            writeln!(f, "{global}")?;
        }
        for function in &self.functions {
            writeln!(f, "\n{function}")?;
        }
        if !self.attributes.is_empty() {
            writeln!(f)?;
        }
        for (number, text) in &self.attributes {
            writeln!(f, "attributes #{number} = {{ {text} }}")?;
        }
        if !self.metadata.is_empty() {
            writeln!(f)?;
        }
        self.metadata.iter().try_for_each(|node| writeln!(f, "!{} = {}", node.name, node.text))
    }
}

impl Display for Global {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "@{} =", Quoted(&self.name))?;
        spaced(f, &self.linkage)?;
        write!(f, " {} {}", if self.constant { "constant" } else { "global" }, self.ty)?;
        if let Some(init) = &self.init {
            write!(f, " {}", Constant(&self.ty, init))?;
        }
        if let Some(section) = &self.section {
            write!(f, ", section \"{}\"", Escaped(section.as_bytes()))?;
        }
        let (properties, attributes) = split_attributes(&self.suffix);
        if !properties.is_empty() {
            write!(f, ", {properties}")?;
        }
        if let Some(align) = self.align {
            write!(f, ", align {align}")?;
        }
        attachments(f, &self.metadata)?;
        spaced(f, attributes)
    }
}

/// A global's suffix without and with its attribute group, `#7`, which stands at the end of the text.
fn split_attributes(suffix: &str) -> (&str, &str) {
    match suffix.rsplit_once(' ') {
        _ if suffix.starts_with('#') => ("", suffix),
        Some((before, last)) if last.starts_with('#') => (before, last),
        _ => (suffix, ""),
    }
}

impl Display for Function {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let names = Names::of(self);
        f.write_str(if self.is_declaration() { "declare" } else { "define" })?;
        if self.is_declaration() {
            self.metadata.iter().try_for_each(|(kind, id)| write!(f, " !{kind} !{}", id.0))?;
        }
        spaced(f, &self.linkage)?;
        spaced(f, &self.ret_attrs)?;
        write!(f, " {} @{}(", self.ret, Quoted(&self.name))?;
        for (at, param) in self.params.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { ", " })?;
            self.print_param(f, &names, param)?;
        }
        match (self.variadic, self.params.is_empty()) {
            (true, true) => f.write_str("...")?,
            (true, false) => f.write_str(", ...")?,
            (false, _) => {}
        }
        f.write_str(")")?;
        spaced(f, &self.suffix)?;
        match self.is_declaration() {
            true => Ok(()),
            false => self.print_body(f, &names),
        }
    }
}

impl Function {
    fn print_param(&self, f: &mut Formatter<'_>, names: &Names, param: &Param) -> fmt::Result {
        write!(f, "{}", param.ty)?;
        spaced(f, &param.attrs)?;
        match self.is_declaration() {
            true => Ok(()),
            false => write!(f, " {}", names.value(param.value)),
        }
    }

    fn print_body(&self, f: &mut Formatter<'_>, names: &Names) -> fmt::Result {
        self.metadata.iter().try_for_each(|(kind, id)| write!(f, " !{kind} !{}", id.0))?;
        writeln!(f, " {{")?;
        for id in self.block_ids() {
            let block = self.block(id);
            if id.0 > 0 {
                writeln!(f)?;
            }
            if let Some(header) = names.header(id) {
                writeln!(f, "{header}")?;
            }
            for inst in &block.insts {
                writeln!(f, "  {}", Instruction(names, inst))?;
            }
            write!(f, "  {}", Terminator(names, &block.term))?;
            attachments(f, &block.term_metadata)?;
            writeln!(f)?;
        }
        f.write_str("}")
    }
}
