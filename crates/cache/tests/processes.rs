//! Several processes on one folder, and processes that cannot write. The test program is its own child.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use elinvar_cache::{Cache, Key};

const ROLE: &str = "ELINVAR_CACHE_TEST_ROLE";
const FOLDER: &str = "ELINVAR_CACHE_TEST_FOLDER";
const LIMIT: u64 = 1 << 30;

fn open(folder: &Path) -> (Cache, Key) {
    let cache = Cache::at(folder, LIMIT, "v");
    let key = cache.key("test").finish();
    (cache, key)
}

/// What writer `n` stores: its number and bytes that cannot be compressed, of a length of its own.
fn content(n: u8) -> Vec<u8> {
    let mut state = u64::from(n) + 1;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    });
    std::iter::once(n).chain(noise).take(50_000 + 12_500 * usize::from(n)).collect()
}

fn is_content(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|n| bytes == content(*n))
}

/// What a child does; nothing when this is not a child.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (cache, key) = open(Path::new(&std::env::var(FOLDER).unwrap()));
    match role.split_once(' ').unwrap() {
        ("write", n) => {
            let content = content(n.parse().unwrap());
            for _ in 0..40 {
                cache.store(&key, &content);
                assert!(is_content(&cache.load(&key).unwrap()));
            }
        }
        ("write-for-ever", n) => {
            let content = content(n.parse().unwrap());
            cache.store(&key, &content);
            println!("\nbegun");
            loop {
                cache.store(&key, &content);
            }
        }
        ("cannot-write", _) => {
            cache.store(&key, &content(3));
            let kept = cache.key("kept").finish();
            assert_eq!(cache.load(&kept).as_deref(), Some(&b"kept"[..]));
            assert_eq!(cache.load(&key), None);
        }
        ("cannot-make", _) => assert!(!cache.is_on()),
        _ => panic!("no such role"),
    }
}

fn command(role: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["child", "--exact", "--nocapture"]).env(ROLE, role).env(FOLDER, folder);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn passes(child: Child) {
    let output = child.wait_with_output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{}: {said}", output.status);
}

#[test]
fn processes_that_write_the_same_entry_never_see_a_torn_one() {
    let folder = tempfile::tempdir().unwrap();
    let children: Vec<Child> =
        (1..=3).map(|n| command(&format!("write {n}"), folder.path()).spawn().unwrap()).collect();
    children.into_iter().for_each(passes);
    let (cache, key) = open(folder.path());
    assert!(is_content(&cache.load(&key).unwrap()));
    assert_eq!(std::fs::read_dir(folder.path().join("1")).unwrap().count(), 1);
}

#[test]
fn a_writer_that_is_killed_leaves_the_entry_whole() {
    for n in 1..=10 {
        let folder = tempfile::tempdir().unwrap();
        let mut child = command(&format!("write-for-ever {n}"), folder.path()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while line.trim() != "begun" {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "the child ended");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        said.read_to_string(&mut line).unwrap();
        let (cache, key) = open(folder.path());
        assert!(is_content(&cache.load(&key).unwrap()));
    }
}

fn with_kept_entry() -> tempfile::TempDir {
    let folder = reachable_folder();
    let (cache, _) = open(folder.path());
    cache.store(&cache.key("kept").finish(), b"kept");
    folder
}

/// A folder that `unprivileged` can reach: root's own TMPDIR may be closed to everybody else.
fn reachable_folder() -> tempfile::TempDir {
    let parent = if is_root() { "/tmp".into() } else { std::env::temp_dir() };
    tempfile::tempdir_in(parent).unwrap()
}

/// A child for which modes count: root is made to be somebody else, to whom the folder is given.
fn unprivileged(role: &str, folder: &Path) -> Command {
    const NOBODY: u32 = 65534;
    let mut command = command(role, folder);
    if is_root() {
        let entries = folder.join("1");
        let inside = entries.read_dir().into_iter().flatten().map(|entry| entry.unwrap().path());
        for path in inside.chain([entries.clone(), folder.to_owned()]).filter(|path| path.exists()) {
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        // The program may lie where nobody but root can go.
        let program = folder.join("program");
        // A child copies it: a descriptor open for writing here would be inherited by the children of other tests,
        // and executing the program would fail (`ETXTBSY`).
        let install = Command::new("install")
            .args(["-m", "755"])
            .arg(std::env::current_exe().unwrap())
            .arg(&program)
            .status();
        assert!(install.unwrap().success());
        let mut other = Command::new(program);
        other.args(command.get_args()).envs(command.get_envs().filter_map(|(k, v)| Some((k, v?))));
        other.stdout(Stdio::piped()).stderr(Stdio::piped()).current_dir("/").gid(NOBODY).uid(NOBODY);
        command = other;
    }
    command
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

#[test]
fn a_folder_that_is_read_only_is_read() {
    let folder = with_kept_entry();
    let mut command = unprivileged("cannot-write x", folder.path());
    let set = |mode| {
        let entries = folder.path().join("1");
        std::fs::set_permissions(&entries, PermissionsExt::from_mode(mode)).unwrap();
    };
    set(0o500);
    passes(command.spawn().unwrap());
    set(0o700);
}

#[test]
fn a_folder_that_cannot_be_made_is_none() {
    let folder = reachable_folder();
    let mut command = unprivileged("cannot-make x", folder.path());
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o555)).unwrap();
    passes(command.spawn().unwrap());
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o700)).unwrap();
}

/// A limit on the size of files stands for the full disk: a write ends in the middle with an error.
#[test]
fn a_disk_that_is_full_keeps_nothing_and_harms_nothing() {
    let folder = with_kept_entry();
    let program = std::env::current_exe().unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$@\"", "sh"]).arg(program);
    shell.args(["child", "--exact", "--nocapture"]).env(ROLE, "cannot-write x").env(FOLDER, folder.path());
    passes(shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    assert_eq!(std::fs::read_dir(folder.path().join("1")).unwrap().count(), 1, "no unfinished file stays");
}
