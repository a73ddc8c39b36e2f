//! Address spaces of pointers, which the front end's unoptimized IR asks for where functions are overloaded on them.

use crate::fault::{Problem, Result};
use crate::machine::Machine;
use crate::memory::Place;
use crate::value::Value;

const DEVICE: u128 = 1;
const CONSTANT: u128 = 2;
const THREADGROUP: u128 = 4;
const THREAD: u128 = 8;

/// Asks for the address space of a pointer.
pub(crate) const ASK: &str = "__elinvar_address_space";

/// Says the address space of an argument.
pub(crate) const ARGUMENT: &str = "__elinvar_argument_space";

/// Expects the address space of a pointer.
pub(crate) const EXPECT: &str = "__elinvar_expect_address_space";

impl Machine<'_> {
    /// Executes a call of one of these intrinsics.
    pub(crate) fn space_call(&mut self, name: &str, args: &[Value]) -> Result<Option<Value>> {
        let number = |i: usize| {
            let value =
                args.get(i).ok_or_else(|| Problem::Malformed(format!("the arguments of `{name}`")))?;
            value.known("an argument of an intrinsic")
        };
        let address = number(0)? as u64;
        match name {
            ARGUMENT => self.memory.set_space(address, number(1)?),
            ASK => return Ok(Some(Value::Bits(self.space(address)?))),
            EXPECT if self.space(address)? & number(2)? == 0 => {
                return Err(Problem::Unsupported("an overload for another address space".to_owned()));
            }
            _ => {}
        }
        Ok(None)
    }

    fn space(&self, address: u64) -> Result<u128> {
        let allocation = self.memory.named(address).ok_or(Problem::Wild { address, len: 0 })?;
        Ok(match allocation.place {
            Place::Argument(_) => allocation.space.unwrap_or(DEVICE),
            Place::Constant(_) | Place::Function(_) => CONSTANT,
            Place::Threadgroup(_) => THREADGROUP,
            Place::Private(_) => THREAD,
        })
    }
}
