//! The names of one function: values and blocks, each of which may be used before it is defined.
//!
//! Numbered names are positions in LLVM's count of unnamed parameters, blocks and results; an unnamed
//! thing takes the next number, and an explicit number must not be below it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::{ParseError, Result};
use crate::model::{Block, BlockId, Op, Term, Type, ValueId, ValueInfo};

/// A name as written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Name {
    Number(u32),
    Text(String),
}

impl Name {
    /// From the text behind the sigil, unescaped; digits are a number.
    pub fn new(text: String) -> Option<Name> {
        match super::is_number(&text) {
            true => text.parse().ok().map(Name::Number),
            false => Some(Name::Text(text)),
        }
    }

    pub fn into_text(self) -> Option<String> {
        match self {
            Name::Number(_) => None,
            Name::Text(text) => Some(text),
        }
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Name::Number(n) => write!(f, "%{n}"),
            Name::Text(text) => write!(f, "%{text}"),
        }
    }
}

#[derive(Clone, Copy)]
enum Slot {
    Value(ValueId),
    /// A block by order of first mention.
    Block(u32),
}

/// Where a name that is not defined yet was first used.
enum State {
    Defined,
    UsedAt(u32),
}

#[derive(Default)]
pub(super) struct Scope {
    slots: HashMap<Name, Slot>,
    pub values: Vec<ValueInfo>,
    value_states: Vec<State>,
    /// By order of first mention.
    block_states: Vec<State>,
    /// The order of first mention of each block, by order of definition.
    block_order: Vec<u32>,
    next_number: u32,
}

impl Scope {
    /// The value of this name, used on `line` as a value of type `ty`.
    pub fn use_value(&mut self, name: Name, ty: &Type, line: u32) -> Result<ValueId> {
        match self.slots.get(&name) {
            Some(Slot::Block(_)) => Err(ParseError::new(line, format!("block `{name}` is used as a value"))),
            Some(Slot::Value(id)) => {
                let known = &self.values[id.0 as usize].ty;
                match known == ty {
                    true => Ok(*id),
                    false => Err(type_clash(&name, known, ty, line)),
                }
            }
            None => Ok(self.add_value(name, ty.clone(), State::UsedAt(line))),
        }
    }

    /// Define a value; without a name it takes the next number.
    pub fn define_value(&mut self, name: Option<Name>, ty: Type, line: u32) -> Result<ValueId> {
        let name = self.claim(name, line)?;
        match self.slots.get(&name) {
            None => Ok(self.add_value(name, ty, State::Defined)),
            Some(Slot::Block(_)) => Err(ParseError::new(line, format!("`{name}` is a block and a value"))),
            Some(Slot::Value(id)) => {
                let id = *id;
                let known = &self.values[id.0 as usize].ty;
                if *known != ty {
                    return Err(type_clash(&name, &ty, known, line));
                }
                let state = &mut self.value_states[id.0 as usize];
                if matches!(state, State::Defined) {
                    return Err(ParseError::new(line, format!("`{name}` is defined twice")));
                }
                *state = State::Defined;
                Ok(id)
            }
        }
    }

    fn add_value(&mut self, name: Name, ty: Type, state: State) -> ValueId {
        let id = ValueId(self.values.len() as u32);
        self.slots.insert(name.clone(), Slot::Value(id));
        self.values.push(ValueInfo { name: name.into_text(), ty });
        self.value_states.push(state);
        id
    }

    /// The block of this name, by order of first mention until [`Scope::finish`].
    pub fn use_block(&mut self, name: Name, line: u32) -> Result<BlockId> {
        match self.slots.entry(name) {
            Entry::Occupied(entry) => match entry.get() {
                Slot::Block(id) => Ok(BlockId(*id)),
                Slot::Value(_) => {
                    Err(ParseError::new(line, format!("value `{}` is used as a block", entry.key())))
                }
            },
            Entry::Vacant(entry) => {
                let id = self.block_states.len() as u32;
                entry.insert(Slot::Block(id));
                self.block_states.push(State::UsedAt(line));
                Ok(BlockId(id))
            }
        }
    }

    /// Define a block; without a name it takes the next number.
    pub fn define_block(&mut self, name: Option<Name>, line: u32) -> Result<()> {
        let name = self.claim(name, line)?;
        let id = self.use_block(name.clone(), line)?;
        let state = &mut self.block_states[id.0 as usize];
        if matches!(state, State::Defined) {
            return Err(ParseError::new(line, format!("block `{name}` is defined twice")));
        }
        *state = State::Defined;
        self.block_order.push(id.0);
        Ok(())
    }

    fn claim(&mut self, name: Option<Name>, line: u32) -> Result<Name> {
        let number = match name {
            Some(Name::Text(text)) => return Ok(Name::Text(text)),
            Some(Name::Number(number)) => number,
            None => self.next_number,
        };
        if number < self.next_number {
            let message = format!("`%{number}` is out of order: expected `%{}`", self.next_number);
            return Err(ParseError::new(line, message));
        }
        match number.checked_add(1) {
            Some(next) => self.next_number = next,
            None => return Err(ParseError::new(line, format!("`%{number}` is too large"))),
        }
        Ok(Name::Number(number))
    }

    /// Check that everything used is defined and point the block references at the blocks.
    pub fn finish(&mut self, blocks: &mut [Block]) -> Result<()> {
        self.check_defined()?;
        let mut position = vec![0; self.block_order.len()];
        for (at, id) in self.block_order.iter().enumerate() {
            position[*id as usize] = at as u32;
        }
        let place = |b: BlockId| BlockId(position[b.0 as usize]);
        for block in blocks {
            block.term.map_successors(place);
            for inst in &mut block.insts {
                if let Op::Phi { incoming, .. } = &mut inst.op {
                    incoming.iter_mut().for_each(|(_, from)| *from = place(*from));
                }
            }
        }
        Ok(())
    }

    fn check_defined(&self) -> Result<()> {
        let first_use = |slot: &Slot| {
            let state = match slot {
                Slot::Value(id) => &self.value_states[id.0 as usize],
                Slot::Block(id) => &self.block_states[*id as usize],
            };
            match state {
                State::Defined => None,
                State::UsedAt(line) => Some(*line),
            }
        };
        let undefined = self.slots.iter().filter_map(|(name, slot)| Some((first_use(slot)?, name, slot)));
        match undefined.min_by_key(|(line, name, _)| (*line, name.to_string())) {
            None => Ok(()),
            Some((line, name, Slot::Value(_))) => {
                Err(ParseError::new(line, format!("`{name}` is used but not defined")))
            }
            Some((line, name, Slot::Block(_))) => {
                Err(ParseError::new(line, format!("block `{name}` is used but not defined")))
            }
        }
    }
}

impl Term {
    /// Whether the word begins a terminator that is read.
    pub(super) fn is_opcode(word: &str) -> bool {
        matches!(word, "br" | "switch" | "ret" | "unreachable")
    }
}

fn type_clash(name: &Name, is: &Type, used: &Type, line: u32) -> ParseError {
    ParseError::new(line, format!("`{name}` of type `{is}` is used as `{used}`"))
}
