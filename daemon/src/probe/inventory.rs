//! What does not change while a daemon lives, looked at once at its start: the disks of the model and of our state, and
//! what this process itself takes.

use std::path::Path;

use plimsoll_config::units::Bytes;
use plimsoll_decide::plan::DiskReading;

use super::disk::device::{self, Device};
use super::disk::space::{self, Space};
use super::disk::speed::{self, ReadSpeed, SpeedKey};
use super::process::smaps_rollup::{self, Rollup};
use super::source::ProbeError;

/// The model's file and its disk.
#[derive(Debug)]
pub(crate) struct ModelDisk {
    /// The folder of the file, for a person.
    folder: String,
    /// Its device.
    pub(crate) device: Result<Device, ProbeError>,
    /// How fast it is.
    pub(crate) speed: Result<ReadSpeed, ProbeError>,
}

impl ModelDisk {
    /// Looks. Takes a second on a slow disk, unless `known` has a figure that still holds.
    pub(crate) fn look(model: &Path, known: impl FnOnce(SpeedKey) -> Option<ReadSpeed>) -> Self {
        let known = speed::key(model).ok().and_then(known);
        let folder = model.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        Self {
            folder: folder.display().to_string(),
            device: device::read(model),
            speed: known.map_or_else(|| speed::measure(model), Ok),
        }
    }

    /// As the planner takes it; `None` where nothing was measured: a tier of unknown speed is not guessed.
    pub(crate) fn reading(&self) -> Option<DiskReading> {
        let speed = self.speed.as_ref().ok()?;
        let device = self.device.as_ref().map_or_else(|_| "no device of its own", |device| &device.name);
        let title = format!(
            "{} on {device} · {}/s {} (measured)",
            self.folder,
            per_second(speed.bytes_per_second),
            speed.way.name()
        );
        Some(DiskReading { title, bytes_per_second: speed.bytes_per_second })
    }

    /// One event with all that was looked at once. Free space is that of now.
    pub(crate) fn log(&self, model: &Path, state: Option<&Path>) {
        let (model_space, state_space) = (space::read(model), state.map(space::read));
        let own = smaps_rollup::read(std::process::id());
        let (device, speed) = (self.device.as_ref().ok(), self.speed.as_ref().ok());
        let space = |space: &Result<Space, ProbeError>| space.as_ref().ok().copied();
        let (model_space_read, state_space_read) = (space(&model_space), state_space.as_ref().and_then(space));
        let rollup: Option<Rollup> = own.as_ref().ok().copied();
        let failures = [
            self.device.as_ref().err(),
            self.speed.as_ref().err(),
            model_space.as_ref().err(),
            state_space.as_ref().and_then(|space| space.as_ref().err()),
            own.as_ref().err(),
        ];
        tracing::debug!(
            device = device.map(|device| device.name.as_str()),
            is_rotational = device.and_then(|device| device.is_rotational),
            read_bytes_per_second = speed.map(|speed| speed.bytes_per_second.0),
            read_way = speed.map(|speed| speed.way.name()),
            model_disk_bytes = model_space_read.map(|space| space.total.0),
            model_disk_free_bytes = model_space_read.map(|space| space.free.0),
            state_disk_free_bytes = state_space_read.map(|space| space.free.0),
            own_resident_bytes = rollup.map(|own| own.resident.0),
            own_proportional_bytes = rollup.map(|own| own.proportional.0),
            failures = failures.into_iter().flatten().map(ToString::to_string).collect::<Vec<_>>().join("; "),
            "inventory"
        );
    }
}

/// `3.1 GB` or `940 MB`: drives are sold in powers of ten.
fn per_second(bytes: Bytes) -> String {
    match bytes.0 {
        bytes @ 1_000_000_000.. => format!("{}.{} GB", bytes / 1_000_000_000, bytes / 100_000_000 % 10),
        bytes => format!("{} MB", bytes / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::disk::speed::Way;
    use crate::probe::source::Why;

    #[test]
    fn the_title_says_where_how_fast_and_by_which_way() {
        let key = SpeedKey { device: 1, file: Bytes(1) };
        let device = || Ok(Device { name: "nvme0n1".into(), is_rotational: Some(false) });
        let absent = || ProbeError::new("/sys/dev/block/0:42", Why::Absent);
        let title = |device, way, bytes| {
            let speed = Ok(ReadSpeed { key, way, bytes_per_second: Bytes(bytes) });
            ModelDisk { folder: "/models".into(), device, speed }.reading().unwrap().title
        };
        let direct = title(device(), Way::Direct, 3_149_000_000);
        assert_eq!(direct, "/models on nvme0n1 · 3.1 GB/s direct (measured)");
        let buffered = title(Err(absent()), Way::Buffered, 940_999_999);
        assert_eq!(buffered, "/models on no device of its own · 940 MB/s buffered (measured)");
        let unmeasured = ModelDisk { folder: "/models".into(), device: device(), speed: Err(absent()) };
        assert_eq!(unmeasured.reading(), None);
    }

    #[test]
    fn a_figure_that_is_known_is_not_measured_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        std::fs::write(&path, "x").unwrap(); // too short to be measured
        let known = |key| Some(ReadSpeed { key, way: Way::Direct, bytes_per_second: Bytes(7) });
        assert_eq!(ModelDisk::look(&path, known).speed.unwrap().bytes_per_second, Bytes(7));
        assert!(ModelDisk::look(&path, |_| None).speed.is_err());
    }
}
