//! Published OpenCL C that nobody here wrote: hash and cipher functions of hashcat, bit by bit against an OpenCL driver.
//!
//! ELINVAR_OPENCL_CORPUS names the folder `corpora`, to which `cargo xtask opencl` downloads the packages. Without it, or without a driver, the
//! cases are ignored and the reason is printed.

use std::path::PathBuf;

use crate::support::{self, Random, pocl};

const THREADS: usize = 64;

/// Bytes of each input of a thread, and of its output.
const BLOCK: usize = 2048;

/// A kernel that calls functions of an included file.
struct Case {
    name: String,
    file: &'static str,
    lanes: usize,
    body: String,
}

/// A hash's function for one block, on vectors of `lanes` words.
fn hash(name: &'static str, file: &'static str, words: usize, lanes: usize) -> Case {
    let (ty, pieces) = if words == 32 { ("u64x", 8) } else { ("u32x", 4) };
    let blocks: Vec<String> = (0..pieces).map(|k| format!("w + {}", 4 * k)).collect();
    let suffix = if lanes == 1 { "" } else { "_vector" };
    let body = format!(
        "u32x w[{words}]; {ty} digest[8];
        for (int k = 0; k < {words}; k++) w[k] = ((__global const u32x *)in0)[i * 32 + k];
        for (int k = 0; k < 8; k++) digest[k] = ((__global const {ty} *)in1)[i * 8 + k];
        {name}_transform{suffix}({}, digest);
        for (int k = 0; k < 8; k++) ((__global {ty} *)out)[i * 8 + k] = digest[k];",
        blocks.join(", ")
    );
    Case { name: format!("{name}{suffix}_{lanes}"), file, lanes, body }
}

/// A cipher's key schedule and both directions.
fn cipher(name: &'static str, file: &'static str, is_twofish: bool) -> Case {
    let (keys, declared) = if is_twofish { ("sk, lk", "u32 sk[4], lk[40];") } else { ("ks", "u32 ks[140];") };
    let decrypt = if name.starts_with("camellia") {
        String::new()
    } else {
        format!("{name}_decrypt({keys}, data + 4, data + 8);")
    };
    let body = format!(
        "{declared} u32 ukey[8], data[12] = {{ 0 }};
        for (int k = 0; k < 8; k++) ukey[k] = ((__global const u32 *)in0)[i * 8 + k];
        for (int k = 0; k < 4; k++) data[k] = ((__global const u32 *)in1)[i * 4 + k];
        {name}_set_key({keys}, ukey);
        {name}_encrypt({keys}, data, data + 4);
        {decrypt}
        for (int k = 0; k < 12; k++) ((__global u32 *)out)[i * 12 + k] = data[k];"
    );
    Case { name: name.to_owned(), file, lanes: 1, body }
}

fn functions() -> Vec<Case> {
    let mut all = Vec::new();
    for lanes in [1, 2, 4, 8, 16] {
        all.push(hash("md4", "inc_hash_md4.cl", 16, lanes));
        all.push(hash("md5", "inc_hash_md5.cl", 16, lanes));
        all.push(hash("ripemd160", "inc_hash_ripemd160.cl", 16, lanes));
        all.push(hash("sha1", "inc_hash_sha1.cl", 16, lanes));
        all.push(hash("sha224", "inc_hash_sha224.cl", 16, lanes));
        all.push(hash("sha256", "inc_hash_sha256.cl", 16, lanes));
        all.push(hash("sha384", "inc_hash_sha384.cl", 32, lanes));
        all.push(hash("sha512", "inc_hash_sha512.cl", 32, lanes));
    }
    for name in ["serpent128", "serpent192", "serpent256"] {
        all.push(cipher(name, "inc_cipher_serpent.cl", false));
    }
    for name in ["twofish128", "twofish192", "twofish256"] {
        all.push(cipher(name, "inc_cipher_twofish.cl", true));
    }
    all.push(cipher("kuznyechik", "inc_cipher_kuznyechik.cl", false));
    all.push(cipher("camellia256", "inc_cipher_camellia.cl", false));
    all
}

fn check(case: &Case, folder: &str) {
    let text = format!(
        "#define KERNEL_STATIC\n#define DGST_R0 0\n#define DGST_R1 3\n#define DGST_R2 2\n#define DGST_R3 1\n#define VENDOR_ID 64\n#define DEVICE_TYPE 4\n#define VECT_SIZE {}\n#define FIXED_LOCAL_SIZE 64\n#define KERN_TYPE 0\n\
         #define ATTACK_EXEC 11\n#define DGST_ELEM 4\n#define HAS_VPERM 0\n#define LOCAL_MEM_TYPE 1\n#define XM2S(x) #x\n\
         #define M2S(x) XM2S(x)\n#define INCLUDE_PATH {folder}\n#define NEW_SIMD_CODE\n#include \"inc_vendor.h\"\n#include \"inc_types.h\"\n\
         #include \"inc_platform.cl\"\n#include \"inc_common.cl\"\n#include \"{}\"\n\
         __kernel void k(__global const uchar *in0, __global const uchar *in1, __global const uchar *in2, __global uchar *out) {{\n\
         size_t i = get_global_id(0);\n{}\n}}\n",
        case.lanes, case.file, case.body
    );
    let mut random = Random(case.lanes as u64);
    let mut input =
        || -> Vec<u8> { (0..THREADS * BLOCK / 8).flat_map(|_| random.next().to_le_bytes()).collect() };
    let inputs = [input(), input(), vec![0; 8]];
    let ours = support::run_in(&text, folder, &inputs, THREADS * BLOCK, THREADS);
    let theirs = pocl::run_in(&text, folder, &inputs, THREADS * BLOCK, THREADS);
    assert!(theirs.iter().any(|byte| *byte != 0), "the driver has computed nothing");
    let wrong = ours.iter().zip(&theirs).filter(|(a, b)| a != b).count();
    assert_eq!(wrong, 0, "bytes that differ");
}

pub fn cases(driver: &Option<String>) -> Vec<crate::Case> {
    let folder = package("hashcat-data/usr/share/hashcat/OpenCL");
    let case = |case: Case| {
        let folder = folder.clone();
        crate::Case {
            name: format!("hashcat::{}", case.name),
            absence: driver.clone().or_else(|| folder.clone().err()),
            run: Box::new(move || check(&case, &folder.expect("the folder of the package"))),
            required: false,
        }
    };
    functions().into_iter().map(case).collect()
}

/// A folder of a package, or why it is not there.
pub fn package(name: &str) -> Result<String, String> {
    let corpora = std::env::var_os("ELINVAR_OPENCL_CORPUS").map(PathBuf::from);
    let folder = corpora.and_then(|corpora| std::fs::canonicalize(corpora.join(name)).ok());
    folder.and_then(|folder| Some(folder.to_str()?.to_owned())).ok_or_else(|| {
        format!("ELINVAR_OPENCL_CORPUS does not name a folder with `{name}`: run `cargo xtask opencl`")
    })
}
