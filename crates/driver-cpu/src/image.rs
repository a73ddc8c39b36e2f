//! Loading of shared objects without files, for processes that must not open any: an ELF image in anonymous memory.
//!
//! Implements the subset of the dynamic loader that the output of our linkers needs: segments, relocations of position-independent code,
//! and symbols of libraries that are already loaded. Initializers, thread-local variables and dependencies are not supported. See the
//! ELF specification, "Dynamic Linking", and the processor's psABI for relocations.

use std::ffi::c_void;
use std::ptr::NonNull;

use elinvar_driver::{Error, Result};
use libloading::os::unix::Library;
use object::elf;
use object::read::elf::{ElfFile64, FileHeader as _, ProgramHeader as _};
use object::{Object as _, ObjectSymbol as _, ObjectSymbolTable as _, RelocationFlags, RelocationTarget};

/// Maximum size of an image in bytes, larger than any kernel's code.
const MOST_BYTES: u64 = 1 << 30;

/// A loaded object.
pub(crate) struct Image {
    start: NonNull<u8>,
    bytes: usize,
}

#[allow(unsafe_code)] // an address of memory of its own
// SAFETY: the pages belong to this value and may be unmapped from any thread.
unsafe impl Send for Image {}
#[allow(unsafe_code)] // as above
// SAFETY: after loading, only the code itself changes the image.
unsafe impl Sync for Image {}

/// A segment: file range, addresses and access.
struct Segment {
    address: u64,
    bytes: u64,
    flags: u32,
}

impl Image {
    /// Loads an object. Returns it with the address of `symbol`.
    pub(crate) fn load(object: &[u8], symbol: &str) -> Result<(Self, *const c_void)> {
        let wrong = |what: &dyn std::fmt::Display| {
            Error::Environment(format!("cannot load the compiled kernel without a file: {what}"))
        };
        let file: ElfFile64<'_> = ElfFile64::parse(object).map_err(|error| wrong(&error))?;
        let endian = file.endian();
        let headers = file.elf_header().program_headers(endian, object).map_err(|error| wrong(&error))?;
        let loaded = headers.iter().filter(|header| header.p_type(endian) == elf::PT_LOAD);
        let end =
            loaded.clone().map(|header| header.p_vaddr(endian).saturating_add(header.p_memsz(endian))).max();
        let end = end.filter(|end| (1..MOST_BYTES).contains(end)).ok_or_else(|| wrong(&"its segments"))?;
        let image = Self::reserve(end as usize).ok_or_else(|| wrong(&"out of memory"))?;
        let mut segments = Vec::new();
        for header in loaded {
            let content =
                header.data(endian, object).map_err(|()| wrong(&"a segment lies outside the file"))?;
            let (address, bytes) = (header.p_vaddr(endian), header.p_memsz(endian));
            if content.len() as u64 > bytes {
                return Err(wrong(&"a segment is larger in the file than in memory"));
            }
            image.write(address, content).ok_or_else(|| wrong(&"a segment lies outside the image"))?;
            segments.push(Segment { address, bytes, flags: header.p_flags(endian) });
        }
        image.relocate(&file).map_err(|what| wrong(&what))?;
        image.protect(&segments).map_err(|error| wrong(&error))?;
        let table = file.dynamic_symbol_table().ok_or_else(|| wrong(&"it has no symbols"))?;
        let found = table.symbols().find(|one| one.is_definition() && one.name() == Ok(symbol));
        let found = found
            .filter(|found| found.address() < end)
            .ok_or_else(|| wrong(&format!("it has no symbol {symbol}")))?;
        let address = image.start.as_ptr().wrapping_add(found.address() as usize);
        Ok((image, address.cast()))
    }

    /// Reserves zeroed, writable pages.
    #[allow(unsafe_code)] // a system call
    fn reserve(bytes: usize) -> Option<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANON;
        // SAFETY: a new private mapping at an address of the system's choice changes no other memory.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        Some(Self { start: NonNull::new(start.cast())?, bytes })
    }

    /// Writes to the image; `None` if the range is outside of it.
    #[allow(unsafe_code)] // writes through an address
    fn write(&self, at: u64, content: &[u8]) -> Option<()> {
        let end = usize::try_from(at).ok()?.checked_add(content.len())?;
        if end > self.bytes {
            return None;
        }
        // SAFETY: the range is within the image, which no other code knows before it is loaded.
        unsafe {
            let to = self.start.as_ptr().add(at as usize);
            std::ptr::copy_nonoverlapping(content.as_ptr(), to, content.len());
        }
        Some(())
    }

    fn relocate(&self, file: &ElfFile64<'_>) -> Result<(), String> {
        let base = self.start.as_ptr().expose_provenance() as u64;
        let table = file.dynamic_symbol_table();
        let libraries = Library::this();
        for (at, relocation) in file.dynamic_relocations().into_iter().flatten() {
            let RelocationFlags::Elf { r_type } = relocation.flags() else {
                return Err(format!("relocation {:?}", relocation.flags()));
            };
            let value = match relocation.target() {
                RelocationTarget::Symbol(index) => {
                    let symbol = table.as_ref().and_then(|table| table.symbol_by_index(index).ok());
                    let symbol = symbol.ok_or("a relocation refers to a nonexistent symbol")?;
                    let name = symbol.name().map_err(|error| error.to_string())?;
                    if symbol.is_definition() {
                        base.wrapping_add(symbol.address())
                    } else {
                        let found = address_of(&libraries, name);
                        match found {
                            Some(found) => found,
                            None if symbol.is_weak() => 0,
                            None => return Err(format!("undefined symbol `{name}`")),
                        }
                    }
                }
                _ => base,
            };
            let value = match (kind(file.elf_header().e_machine(file.endian()), r_type), relocation.target())
            {
                (Some(Kind::Relative), RelocationTarget::Absolute) | (Some(Kind::Sum), _) => {
                    value.wrapping_add_signed(relocation.addend())
                }
                (Some(Kind::Slot), RelocationTarget::Symbol(_)) => value,
                _ => return Err(format!("relocation of type {r_type}")),
            };
            self.write(at, &value.to_ne_bytes()).ok_or("a relocation lies outside the image")?;
        }
        Ok(())
    }

    /// Sets the access of each segment. No segment is both writable and executable.
    #[allow(unsafe_code)] // a system call
    fn protect(&self, segments: &[Segment]) -> Result<(), String> {
        let page = crate::host::page_size();
        for segment in segments {
            let first = segment.address / page * page;
            let len = (segment.address + segment.bytes).next_multiple_of(page) - first;
            let flag = |flag, access| if segment.flags & flag != 0 { access } else { 0 };
            let access = flag(elf::PF_R, libc::PROT_READ)
                | flag(elf::PF_W, libc::PROT_WRITE)
                | flag(elf::PF_X, libc::PROT_EXEC);
            if segment.flags & (elf::PF_W | elf::PF_X) == elf::PF_W | elf::PF_X {
                return Err("a segment is both writable and executable".into());
            }
            // SAFETY: pages of the image, in which no code runs yet.
            let status = unsafe {
                let at = self.start.as_ptr().add(first as usize);
                libc::mprotect(at.cast(), len as usize, access)
            };
            if status != 0 {
                return Err(std::io::Error::last_os_error().to_string());
            }
        }
        Ok(())
    }
}

impl Drop for Image {
    #[allow(unsafe_code)] // a system call
    fn drop(&mut self) {
        // SAFETY: exactly the pages that `reserve` mapped, whose only owner is being dropped.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// The value of a relocation.
enum Kind {
    /// Image address plus addend.
    Relative,
    /// Symbol address plus addend.
    Sum,
    /// Symbol address.
    Slot,
}

fn kind(machine: u16, r_type: u32) -> Option<Kind> {
    match (machine, r_type) {
        (elf::EM_X86_64, elf::R_X86_64_RELATIVE) | (elf::EM_AARCH64, elf::R_AARCH64_RELATIVE) => {
            Some(Kind::Relative)
        }
        (elf::EM_X86_64, elf::R_X86_64_64) | (elf::EM_AARCH64, elf::R_AARCH64_ABS64) => Some(Kind::Sum),
        (elf::EM_X86_64, elf::R_X86_64_GLOB_DAT | elf::R_X86_64_JUMP_SLOT)
        | (elf::EM_AARCH64, elf::R_AARCH64_GLOB_DAT | elf::R_AARCH64_JUMP_SLOT) => Some(Kind::Slot),
        _ => None,
    }
}

/// Address of a symbol in a loaded library.
#[allow(unsafe_code)] // asks the system's loader
fn address_of(libraries: &Library, name: &str) -> Option<u64> {
    let name = std::ffi::CString::new(name).ok()?;
    // SAFETY: only the address is taken; compiled code, which calls it, knows the function's type.
    let symbol = unsafe { libraries.get::<*const c_void>(name.as_bytes_with_nul()) }.ok()?;
    let address = symbol.into_raw();
    Some(address.expose_provenance() as u64).filter(|address| *address != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::{Code, Launch};
    use crate::testing;

    /// Calls of two libraries, a table of pointers, and a writable variable.
    const IR: &str = "
        @table = internal constant [2 x ptr] [ptr @first, ptr @second]
        @first = internal constant float 0.5
        @second = internal constant float 2.0
        @count = internal global i32 5
        declare float @sinf(float)
        declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
        define i32 @elinvar_threadgroups(ptr %l, ptr %s, i64 %b, i64 %e) {
          %p = getelementptr [2 x ptr], ptr @table, i64 0, i64 %b
          %q = load ptr, ptr %p
          %v = load float, ptr %q
          %r = call float @sinf(float %v)
          call void @llvm.memcpy.p0.p0.i64(ptr %s, ptr %q, i64 %e, i1 false)
          %m = fmul float %r, 1000.0
          %x = fptosi float %m to i32
          %n = load i32, ptr @count
          %o = add i32 %n, 1
          store i32 %o, ptr @count
          %y = add i32 %x, %o
          ret i32 %y
        }";

    #[test]
    #[allow(unsafe_code)] // runs compiled code
    fn code_without_a_file_runs_as_code_from_one() {
        let object = testing::generator().object(IR).unwrap();
        let from_file = Code::from_bytes(&object, "elinvar_threadgroups").unwrap();
        let image = Code::from_image(&object, "elinvar_threadgroups").unwrap();
        let launch = Launch { threads: [1; 3], groups: [1; 3], ..Launch::default() };
        for (k, number) in [(0, 0.5_f32), (1, 2.0)] {
            let mut copied = [0_u8; 4];
            // SAFETY: the function writes four bytes to its second argument.
            let results =
                [&from_file, &image].map(|code| unsafe { code.run(&launch, copied.as_mut_ptr(), k..4) });
            let expected = (number.sin() * 1000.0) as i32 + 6 + k as i32;
            assert_eq!(results, [expected; 2]);
            assert_eq!(f32::from_ne_bytes(copied), number);
        }
    }

    #[test]
    fn what_is_no_object_is_refused() {
        let object = testing::generator().object(testing::COUNT).unwrap();
        assert!(Image::load(&object, "another").is_err());
        assert!(Image::load(b"\x7fELF", "elinvar_threadgroups").is_err());
        for end in (0..object.len()).step_by(97) {
            let _refused_or_loaded = Image::load(&object[..end], "elinvar_threadgroups");
        }
    }
}
