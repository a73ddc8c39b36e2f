//! Files: flags of `open` and `fcntl`, and the structures of `stat` and `readdir`.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};

super::table! {
    "fcntl" => fcntl,
    "fsetattrlist" => refuse,
    "fstat" => fstat,
    "fstatat" => fstatat,
    "getpwuid_r" => refuse,
    "ioctl" => ioctl,
    "linkat" => linkat,
    "lstat" => lstat,
    "mkdirat" => mkdirat,
    "mmap" => mmap,
    "open" => open,
    "openat" => openat,
    "readdir" => readdir,
    "readdir_r" => readdir_r,
    "stat" => stat,
    "unlinkat" => unlinkat,
}

/// `AT_FDCWD`.
const HERE: c_int = -2;

fn folder(folder: c_int) -> c_int {
    if folder == HERE { libc::AT_FDCWD } else { folder }
}

/// Flags of macOS and of this system.
const OPEN_FLAGS: [(c_int, c_int); 9] = [
    (0x4, libc::O_NONBLOCK),
    (0x8, libc::O_APPEND),
    (0x100, libc::O_NOFOLLOW),
    (0x200, libc::O_CREAT),
    (0x400, libc::O_TRUNC),
    (0x800, libc::O_EXCL),
    (0x2_0000, libc::O_NOCTTY),
    (0x10_0000, libc::O_DIRECTORY),
    (0x100_0000, libc::O_CLOEXEC),
];

fn open_flags(theirs: c_int) -> c_int {
    let set = OPEN_FLAGS.iter().filter(|(flag, _)| theirs & flag != 0);
    set.fold(theirs & 3, |ours, (_, flag)| ours | flag)
}

/// # Safety
/// As the function of this system.
#[allow(unsafe_code)] // a C function
unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { libc::open(path, open_flags(flags), mode) }
}

/// # Safety
/// As the function of this system.
#[allow(unsafe_code)] // a C function
unsafe extern "C" fn openat(at: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { libc::openat(folder(at), path, open_flags(flags), mode) }
}

/// `F_GETFL`, `F_SETFL`, descriptor flags and duplication; other requests have no effect.
///
/// # Safety
/// As the function of this system.
#[allow(unsafe_code)] // C functions
unsafe extern "C" fn fcntl(file: c_int, command: c_int, argument: c_long) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        match command {
            1 | 2 => libc::fcntl(file, command, argument),
            3 => {
                let ours = libc::fcntl(file, libc::F_GETFL);
                if ours < 0 { ours } else { (ours & 3) | if ours & libc::O_NONBLOCK == 0 { 0 } else { 4 } }
            }
            4 => libc::fcntl(file, libc::F_SETFL, open_flags(argument as c_int)),
            67 => libc::fcntl(file, libc::F_DUPFD_CLOEXEC, argument),
            _ => 0,
        }
    }
}

/// Requests for close-on-exec and nonblocking mode.
///
/// # Safety
/// `argument` is what the request takes.
#[allow(unsafe_code)] // C functions
unsafe extern "C" fn ioctl(file: c_int, request: u64, argument: *mut c_void) -> c_int {
    let ours = match request {
        0x2000_6601 => libc::FIOCLEX,
        0x2000_6602 => libc::FIONCLEX,
        0x8004_667e => libc::FIONBIO,
        _ => return -1,
    };
    // SAFETY: the caller's promise.
    unsafe { libc::ioctl(file, ours, argument) }
}

/// # Safety
/// As the function of this system.
#[allow(unsafe_code)] // a C function
unsafe extern "C" fn mmap(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> *mut c_void {
    let anonymous = if flags & 0x1000 == 0 { 0 } else { libc::MAP_ANONYMOUS };
    // SAFETY: the caller's promise. Shared, private and fixed mappings have the same flags on both.
    unsafe { libc::mmap(address, length, protection, (flags & 0x13) | anonymous, file, offset) }
}

/// # Safety
/// As the function of this system.
#[allow(unsafe_code)] // a C function
unsafe extern "C" fn mkdirat(at: c_int, path: *const c_char, mode: c_uint) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { libc::mkdirat(folder(at), path, mode) }
}

/// # Safety
/// As the function of this system.
#[allow(unsafe_code)] // a C function
unsafe extern "C" fn unlinkat(at: c_int, path: *const c_char, flags: c_int) -> c_int {
    let flags = if flags & 0x80 == 0 { 0 } else { libc::AT_REMOVEDIR };
    // SAFETY: the caller's promise.
    unsafe { libc::unlinkat(folder(at), path, flags) }
}

/// # Safety
/// As the function of this system.
#[allow(unsafe_code)] // a C function
unsafe extern "C" fn linkat(
    from_at: c_int,
    from: *const c_char,
    to_at: c_int,
    to: *const c_char,
    _flags: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { libc::linkat(folder(from_at), from, folder(to_at), to, 0) }
}

/// `struct stat` of macOS.
#[repr(C)]
struct Stat {
    dev: i32,
    mode: u16,
    nlink: u16,
    ino: u64,
    uid: u32,
    gid: u32,
    rdev: i32,
    times: [[i64; 2]; 4],
    size: i64,
    blocks: i64,
    blksize: i32,
    flags: u32,
    generation: u32,
    spare: [i32; 5],
}

/// # Safety
/// `theirs` is a place for one.
#[allow(unsafe_code)] // writes for the program
unsafe fn translate(status: c_int, ours: &libc::stat, theirs: *mut Stat) -> c_int {
    if status == 0 {
        let translated = Stat {
            dev: ours.st_dev as i32,
            mode: ours.st_mode as u16,
            nlink: ours.st_nlink as u16,
            ino: ours.st_ino,
            uid: ours.st_uid,
            gid: ours.st_gid,
            rdev: ours.st_rdev as i32,
            times: [
                [ours.st_atime, ours.st_atime_nsec],
                [ours.st_mtime, ours.st_mtime_nsec],
                [ours.st_ctime, ours.st_ctime_nsec],
                [ours.st_ctime, ours.st_ctime_nsec],
            ],
            size: ours.st_size,
            blocks: ours.st_blocks,
            blksize: ours.st_blksize as i32,
            flags: 0,
            generation: 0,
            spare: [0; 5],
        };
        // SAFETY: the caller's promise.
        unsafe { theirs.write(translated) };
    }
    status
}

#[allow(unsafe_code)] // zeroes are a value of it
fn empty() -> libc::stat {
    // SAFETY: a structure of numbers.
    unsafe { std::mem::zeroed() }
}

/// # Safety
/// As the function of this system.
#[allow(unsafe_code)] // C functions
unsafe extern "C" fn stat(path: *const c_char, theirs: *mut Stat) -> c_int {
    let mut ours = empty();
    // SAFETY: the caller's promise.
    unsafe { translate(libc::stat(path, &raw mut ours), &ours, theirs) }
}

/// # Safety
/// As the function of this system.
#[allow(unsafe_code)] // C functions
unsafe extern "C" fn lstat(path: *const c_char, theirs: *mut Stat) -> c_int {
    let mut ours = empty();
    // SAFETY: the caller's promise.
    unsafe { translate(libc::lstat(path, &raw mut ours), &ours, theirs) }
}

/// # Safety
/// As the function of this system.
#[allow(unsafe_code)] // C functions
unsafe extern "C" fn fstat(file: c_int, theirs: *mut Stat) -> c_int {
    let mut ours = empty();
    // SAFETY: the caller's promise.
    unsafe { translate(libc::fstat(file, &raw mut ours), &ours, theirs) }
}

/// # Safety
/// As the function of this system.
#[allow(unsafe_code)] // C functions
unsafe extern "C" fn fstatat(at: c_int, path: *const c_char, theirs: *mut Stat, flags: c_int) -> c_int {
    let mut ours = empty();
    let flags = if flags & 0x20 == 0 { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
    // SAFETY: the caller's promise.
    unsafe { translate(libc::fstatat(folder(at), path, &raw mut ours, flags), &ours, theirs) }
}

/// `struct dirent` of macOS.
#[repr(C)]
#[derive(Clone, Copy)]
struct Entry {
    ino: u64,
    seek: u64,
    length: u16,
    name_length: u16,
    kind: u8,
    name: [u8; 1024],
}

thread_local! {
    static ENTRY: std::cell::UnsafeCell<Entry> =
        const { std::cell::UnsafeCell::new(Entry { ino: 0, seek: 0, length: 0, name_length: 0, kind: 0, name: [0; 1024] }) };
}

/// # Safety
/// As the function of this system; `entry` is a place for one.
#[allow(unsafe_code)] // C functions
unsafe extern "C" fn readdir_r(folder: *mut libc::DIR, entry: *mut Entry, result: *mut *mut Entry) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let ours = libc::readdir(folder);
        if ours.is_null() {
            result.write(std::ptr::null_mut());
            return 0;
        }
        let name = std::ffi::CStr::from_ptr((*ours).d_name.as_ptr()).to_bytes();
        (*entry).ino = (*ours).d_ino;
        ((*entry).length, (*entry).name_length) = (size_of::<Entry>() as u16, name.len() as u16);
        (*entry).kind = (*ours).d_type;
        let target = (&raw mut (*entry).name).cast::<u8>();
        target.copy_from_nonoverlapping(name.as_ptr(), name.len());
        target.add(name.len()).write(0);
        result.write(entry);
    }
    0
}

/// # Safety
/// As the function of this system.
#[allow(unsafe_code)] // calls one that is
unsafe extern "C" fn readdir(folder: *mut libc::DIR) -> *mut Entry {
    let mut found = std::ptr::null_mut();
    // SAFETY: the caller's promise; the place is this thread's.
    ENTRY.with(|entry| unsafe { readdir_r(folder, entry.get(), &raw mut found) });
    found
}

/// Unsupported functions, which return an error.
extern "C" fn refuse() -> c_int {
    libc::ENOENT
}
