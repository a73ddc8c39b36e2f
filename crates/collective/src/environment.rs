//! [`Environment`]: rank and size of this process, as launchers tell them.
//!
//! | launcher | variables |
//! |---|---|
//! | `elinvar launch` | `ELINVAR_RANK`, `ELINVAR_SIZE`, `ELINVAR_LOCAL_RANK`, `ELINVAR_JOB` |
//! | Open MPI's `mpirun` | `OMPI_COMM_WORLD_RANK`, `…_SIZE`, `…_LOCAL_RANK`, `PMIX_NAMESPACE` |
//! | `torchrun` | `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `TORCHELASTIC_RUN_ID`, `MASTER_PORT`, `TORCHELASTIC_RESTART_COUNT` |
//! | MPICH's `mpiexec`, Intel MPI's | `PMI_RANK`, `PMI_SIZE`, `MPI_LOCALRANKID`, `MPI_LOCALNRANKS`, `PMI_JOBID` if there is one |
//! | Slurm's `srun` | `SLURM_PROCID`, `SLURM_NTASKS`, `SLURM_LOCALID`, `SLURM_JOB_ID`, `SLURM_STEP_ID` |
//!
//! The first launcher in this order counts: `mpirun` within a Slurm job has both.

use elinvar_driver::{Error, Result};

/// Rank and size of this process in its job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Environment {
    /// Name of the launcher.
    pub launcher: &'static str,
    /// Rank of the process, from 0.
    pub rank: u32,
    /// Number of processes.
    pub size: u32,
    /// Rank among the processes of this machine.
    pub local_rank: u32,
    /// Number of processes of this machine, if the launcher tells it.
    pub local_size: Option<u32>,
    /// Identity of the job, the same in all of its processes; empty if unknown.
    pub job: String,
}

/// A launcher, with the names of its variables.
struct Launcher {
    name: &'static str,
    rank: &'static str,
    size: &'static str,
    local_rank: &'static str,
    local_size: &'static str,
    job: &'static [&'static str],
}

const LAUNCHERS: [Launcher; 5] = [
    Launcher {
        name: "elinvar launch",
        rank: "ELINVAR_RANK",
        size: "ELINVAR_SIZE",
        local_rank: "ELINVAR_LOCAL_RANK",
        local_size: "ELINVAR_SIZE",
        job: &["ELINVAR_JOB"],
    },
    Launcher {
        name: "mpirun",
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        local_size: "OMPI_COMM_WORLD_LOCAL_SIZE",
        job: &["PMIX_NAMESPACE"],
    },
    Launcher {
        name: "torchrun",
        rank: "RANK",
        size: "WORLD_SIZE",
        local_rank: "LOCAL_RANK",
        local_size: "LOCAL_WORLD_SIZE",
        job: &["TORCHELASTIC_RUN_ID", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"],
    },
    Launcher {
        name: "mpiexec",
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        local_rank: "MPI_LOCALRANKID",
        local_size: "MPI_LOCALNRANKS",
        job: &["PMI_JOBID"],
    },
    Launcher {
        name: "srun",
        rank: "SLURM_PROCID",
        size: "SLURM_NTASKS",
        local_rank: "SLURM_LOCALID",
        local_size: "SLURM_TASKS_PER_NODE",
        job: &["SLURM_JOB_ID", "SLURM_STEP_ID"],
    },
];

impl Environment {
    /// Reads the process' environment. `None` if no launcher has started it.
    ///
    /// # Errors
    /// `InvalidArgument` that names a variable whose value makes no sense.
    pub fn read() -> Result<Option<Self>> {
        Self::of(|name| std::env::var(name).ok())
    }

    /// As [`Environment::read`], with the variables that `get` returns.
    ///
    /// # Errors
    /// As [`Environment::read`].
    pub fn of(get: impl Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        let Some(launcher) =
            LAUNCHERS.iter().find(|known| get(known.rank).is_some() && get(known.size).is_some())
        else {
            return Ok(None);
        };
        let number = |name: &str| {
            let text = get(name).unwrap_or_default();
            text.trim().parse::<u32>().map_err(|_| {
                Error::invalid(format!("{name}={text}, set by {}: expected a number", launcher.name))
            })
        };
        let (rank, size) = (number(launcher.rank)?, number(launcher.size)?);
        if rank >= size {
            let (rank_name, size_name) = (launcher.rank, launcher.size);
            return Err(Error::invalid(format!(
                "{rank_name}={rank}, but {size_name}={size}: ranks begin at 0"
            )));
        }
        let local_rank = if get(launcher.local_rank).is_some() { number(launcher.local_rank)? } else { rank };
        let local_size = get(launcher.local_size).and_then(|text| text.trim().parse().ok());
        let parts: Vec<String> = launcher.job.iter().filter_map(|name| get(name)).collect();
        let usual = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let job = parts.join("-").chars().map(usual).take(100).collect();
        Ok(Some(Self { launcher: launcher.name, rank, size, local_rank, local_size, job }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Environment>> {
        Environment::of(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into())
        })
    }

    #[test]
    fn each_launcher_is_understood() {
        let environment = |launcher, rank, size, local_rank, job: &str| {
            let local_size = (launcher == "elinvar launch").then_some(size);
            Some(Environment { launcher, rank, size, local_rank, local_size, job: job.into() })
        };
        assert_eq!(read(&[]).unwrap(), None);
        assert_eq!(read(&[("RANK", "1")]).unwrap(), None, "any program may use this name");
        let ours = [
            ("ELINVAR_RANK", "3"),
            ("ELINVAR_SIZE", "4"),
            ("ELINVAR_LOCAL_RANK", "1"),
            ("ELINVAR_JOB", "a/b"),
        ];
        assert_eq!(read(&ours).unwrap(), environment("elinvar launch", 3, 4, 1, "a-b"));
        let mpi = [
            ("OMPI_COMM_WORLD_RANK", "0"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "0"),
            ("PMIX_NAMESPACE", "prterun-host-12@1"),
            ("SLURM_PROCID", "7"),
            ("SLURM_NTASKS", "9"),
        ];
        assert_eq!(read(&mpi).unwrap(), environment("mpirun", 0, 2, 0, "prterun-host-12-1"));
        assert_eq!(read(&mpi[4..]).unwrap(), environment("srun", 7, 9, 7, ""));
        let mpich = [
            ("PMI_RANK", "2"),
            ("PMI_SIZE", "3"),
            ("MPI_LOCALRANKID", "1"),
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "1"),
        ];
        assert_eq!(read(&mpich).unwrap(), environment("mpiexec", 2, 3, 1, ""));
        let torch = [("RANK", "5"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "1"), ("MASTER_PORT", "29500")];
        assert_eq!(read(&torch).unwrap(), environment("torchrun", 5, 8, 1, "29500"));
        let error = read(&[("RANK", "8"), ("WORLD_SIZE", "8")]).unwrap_err().to_string();
        assert!(error.contains("RANK=8") && error.contains("WORLD_SIZE=8"), "{error}");
        let error = read(&[("RANK", "x"), ("WORLD_SIZE", "8")]).unwrap_err().to_string();
        assert!(error.contains("RANK=x") && error.contains("torchrun"), "{error}");
    }
}
