//! Rebase and bind tables, which relocate a program's pointers and bind its symbols.
//!
//! The tables are bytecode, described in `mach-o/loader.h`: a byte has an opcode in its upper half and an immediate value in its
//! lower half.

use anyhow::{Context, Result, bail};

use crate::image::Image;

/// Adds the slide to every pointer of the table.
#[allow(unsafe_code)] // sets pointers of the program
pub fn rebase(image: &Image) -> Result<()> {
    let mut code = Code(image.table(0));
    let mut at = 0_u64;
    let shift = |at: u64| {
        let pointer = at.wrapping_add(image.slide) as *mut u64;
        // SAFETY: the table names pointers in the program's writable segments, which are mapped.
        unsafe { pointer.write_unaligned(pointer.read_unaligned().wrapping_add(image.slide)) };
    };
    while let Some((operation, small)) = code.operation() {
        let (mut count, mut skip) = (0, 0);
        match operation {
            0x00 => break,
            0x10 => {}
            0x20 => at = segment(image, small)?.wrapping_add(code.number()?),
            0x30 => at = at.wrapping_add(code.number()?),
            0x40 => at = at.wrapping_add(u64::from(small) * 8),
            0x50 => count = u64::from(small),
            0x60 => count = code.number()?,
            0x70 => (count, skip) = (1, code.number()?),
            0x80 => (count, skip) = (code.number()?, code.number()?),
            other => bail!("unknown operation {other:#x} of a rebase table"),
        }
        for _ in 0..count {
            shift(at);
            at = at.wrapping_add(8).wrapping_add(skip);
        }
    }
    Ok(())
}

/// Sets every pointer of a bind table to the address that `find` returns for its symbol.
#[allow(unsafe_code)] // sets pointers of the program
pub fn bind(image: &Image, table: usize, find: &mut dyn FnMut(&str) -> u64) -> Result<()> {
    let mut code = Code(image.table(table));
    let (mut at, mut addend, mut target) = (0_u64, 0_i64, 0_u64);
    while let Some((operation, small)) = code.operation() {
        let (mut count, mut skip) = (0, 0);
        match operation {
            // Ends a table, or one entry of the lazy bind table.
            0x00 | 0x10 | 0x30 | 0x50 => {}
            0x20 => drop(code.number()?),
            0x40 => target = find(code.text()?),
            0x60 => addend = code.signed()?,
            0x70 => at = segment(image, small)?.wrapping_add(code.number()?),
            0x80 => at = at.wrapping_add(code.number()?),
            0x90 => count = 1,
            0xa0 => (count, skip) = (1, code.number()?),
            0xb0 => (count, skip) = (1, u64::from(small) * 8),
            0xc0 => (count, skip) = (code.number()?, code.number()?),
            other => bail!("unknown operation {other:#x} of a bind table"),
        }
        for _ in 0..count {
            let pointer = at.wrapping_add(image.slide) as *mut u64;
            // SAFETY: the table names pointers in the program's writable segments, which are mapped.
            unsafe { pointer.write_unaligned(target.wrapping_add_signed(addend)) };
            at = at.wrapping_add(8).wrapping_add(skip);
        }
    }
    Ok(())
}

fn segment(image: &Image, index: u8) -> Result<u64> {
    image.segments.get(usize::from(index)).copied().context("a table refers to a nonexistent segment")
}

/// The rest of a table.
struct Code<'a>(&'a [u8]);

impl<'a> Code<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn operation(&mut self) -> Option<(u8, u8)> {
        self.byte().map(|byte| (byte & 0xf0, byte & 0x0f))
    }

    /// Reads a ULEB128 number.
    fn number(&mut self) -> Result<u64> {
        let (mut number, mut shift) = (0_u64, 0);
        loop {
            let byte = self.byte().context("a table ends in the middle of a number")?;
            number |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            shift += 7;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
    }

    fn signed(&mut self) -> Result<i64> {
        let before = self.0;
        let number = self.number()?;
        let bits = 7 * (before.len() - self.0.len()) as u32;
        let unused = 64_u32.saturating_sub(bits);
        Ok((number << unused) as i64 >> unused)
    }

    fn text(&mut self) -> Result<&'a str> {
        let end =
            self.0.iter().position(|byte| *byte == 0).context("a table ends in the middle of a name")?;
        let text = std::str::from_utf8(&self.0[..end])?;
        self.0 = &self.0[end + 1..];
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_read() {
        let mut code = Code(b"\x7f\x80\x01\x7f\x80\x7f_name\0\x95");
        assert_eq!((code.number().unwrap(), code.number().unwrap()), (127, 128));
        assert_eq!((code.signed().unwrap(), code.signed().unwrap()), (-1, -128));
        assert_eq!(code.text().unwrap(), "_name");
        assert_eq!((code.operation(), code.operation()), (Some((0x90, 5)), None));
        assert!(code.number().is_err() && code.text().is_err());
    }
}
