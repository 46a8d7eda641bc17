//! What is kept over the daemon's life: limits learned from deaths, what starts held beside their plans, requests that killed
//! workers, for replay, and how fast the model's disk was found to be.
//!
//! The folder is `$STATE_DIRECTORY` (systemd), else `$XDG_STATE_HOME/plimsoll`, else `~/.local/state/plimsoll`. Kept requests are
//! readable by their owner alone: they hold what somebody wrote. Nothing here is needed to serve: what can't be read or
//! written is a line in the log. A thread of its own writes, in order: the supervisor waits for no disk.

use std::collections::VecDeque;
use std::fs::{self, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

use plimsoll_config::limits::{
    MAX_KEPT_REQUESTS, MAX_LEARNED_STEPS, MAX_MEASURED_STARTS, MAX_STATE_FILE_BYTES, STATE_QUEUE,
};
use plimsoll_config::units::{Bytes, Millis};
use plimsoll_decide::admission::RequestId;
use plimsoll_decide::ledger::{AccountId, Object};
use plimsoll_decide::lifecycle::death::OomAccount;
use plimsoll_decide::lifecycle::learned::{Learned, Lowered};
use plimsoll_decide::measured::{Key, Pair, Truth};
use plimsoll_decide::plan::CapLever;
use serde_json::{Value, json};

use crate::clock;
use crate::probe::{ReadSpeed, SpeedKey, Way};

/// The folder, and which model's limits are in it.
#[derive(Debug)]
pub(crate) struct StateFolder {
    folder: Option<PathBuf>,
    model: String,
}

impl StateFolder {
    /// The folder that the environment names. Nothing is made before something is stored.
    pub(crate) fn of_environment(model: &Path) -> Self {
        let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let folder = of("STATE_DIRECTORY")
            .or_else(|| of("XDG_STATE_HOME").map(|path| path.join("plimsoll")))
            .or_else(|| of("HOME").map(|path| path.join(".local/state/plimsoll")));
        Self { folder, model: model.display().to_string() }
    }

    /// The folder; `None` where the environment names none.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// One file for each model: what is too much for one is nothing for another.
    fn file(&self, what: &str) -> Option<PathBuf> {
        let mut hasher = DefaultHasher::new();
        self.model.hash(&mut hasher);
        Some(self.folder.as_ref()?.join(format!("{what}-{:016x}.json", hasher.finish())))
    }

    fn learned_file(&self) -> Option<PathBuf> {
        self.file("learned")
    }

    /// How fast the model's file was read by an earlier daemon, if it is still that file on that device.
    pub(crate) fn load_read_speed(&self, key: SpeedKey) -> Option<ReadSpeed> {
        let text = read_bounded(&self.file("read-speed")?).ok()?;
        parse_read_speed(&text).filter(|speed| speed.key == key)
    }

    /// Keeps it. A folder that can't be written costs the next start a second.
    pub(crate) fn store_read_speed(&self, speed: &ReadSpeed) {
        if let Some(path) = self.file("read-speed")
            && self.load_read_speed(speed.key) != Some(*speed)
            && let Err(e) = write_whole(&path, &read_speed_json(speed).to_string())
        {
            tracing::debug!("how fast the model's disk is, is not kept in {}: {e}", path.display());
        }
    }

    fn measured_file(&self) -> Option<PathBuf> {
        self.file("measured")
    }

    /// What earlier starts of this model held; nothing if that can't be read.
    pub(crate) fn load_truth(&self) -> Truth {
        let Some(path) = self.measured_file().filter(|path| path.exists()) else { return Truth::default() };
        let truth = read_bounded(&path).ok().and_then(|text| parse_truth(&self.model, &text));
        if truth.is_none() {
            tracing::warn!("{} can't be read: estimates are not corrected by earlier starts", path.display());
        }
        truth.unwrap_or_default()
    }

    fn store_truth(&self, truth: &Truth) {
        if let Some(path) = self.measured_file()
            && let Err(e) = write_whole(&path, &truth_json(truth).to_string())
        {
            tracing::warn!("what was measured is not stored in {}: {e}", path.display());
        }
    }

    /// What earlier daemons learned of this model; nothing if that can't be read.
    pub(crate) fn load_learned(&self) -> Learned {
        let Some(path) = self.learned_file().filter(|path| path.exists()) else { return Learned::default() };
        let learned = read_bounded(&path).ok().and_then(|text| parse_learned(&text));
        if learned.is_none() {
            tracing::warn!("{} can't be read: no limit of an earlier start holds", path.display());
        }
        learned.unwrap_or_default()
    }

    fn store_learned(&self, learned: &Learned) {
        let text = learned_json(&self.model, learned).to_string();
        if let Some(path) = self.learned_file()
            && let Err(e) = write_whole(&path, &text)
        {
            tracing::warn!("what was learned is not stored in {}: {e}", path.display());
        }
    }

    fn keep_request(&self, request: RequestId, mut record: Value) {
        let Some(folder) = self.folder.as_ref().map(|folder| folder.join("kept")) else { return };
        let path = folder.join(format!("{:012}-{}.json", clock::unix_seconds(), request.0));
        record["model"] = self.model.clone().into();
        match write_whole(&path, &record.to_string()).and_then(|()| prune(&folder)) {
            Ok(()) => tracing::warn!(request = request.0, "request kept for replay: {}", path.display()),
            Err(e) => tracing::warn!(request = request.0, "request not kept in {}: {e}", path.display()),
        }
    }

    /// Starts the thread that writes.
    ///
    /// # Errors
    /// No thread can be had.
    pub(crate) fn into_writer(self) -> io::Result<StateWriter> {
        let (jobs, inbox) = mpsc::sync_channel(STATE_QUEUE);
        thread::Builder::new().name("state".into()).spawn(move || {
            for job in inbox {
                match job {
                    Job::Learned(learned) => self.store_learned(&learned),
                    Job::Measured(truth) => self.store_truth(&truth),
                    Job::Keep(request, record) => self.keep_request(request, record),
                }
            }
        })?;
        Ok(StateWriter { jobs })
    }
}

/// What is to be written.
#[derive(Debug)]
enum Job {
    Learned(Learned),
    Measured(Truth),
    Keep(RequestId, Value),
}

/// The way to the thread that writes.
#[derive(Debug, Clone)]
pub(crate) struct StateWriter {
    jobs: mpsc::SyncSender<Job>,
}

impl StateWriter {
    /// Stores what was learned, and says so.
    pub(crate) fn store_learned(&self, learned: &Learned) {
        for step in &learned.steps {
            tracing::warn!("learned: {} at most {} since {} ran out of memory", step.lever.name(), step.to, step.from);
        }
        self.send(Job::Learned(learned.clone()));
    }

    /// Stores what starts of the model held.
    pub(crate) fn store_truth(&self, truth: Truth) {
        self.send(Job::Measured(truth));
    }

    /// Keeps a request that killed workers; of more than [`MAX_KEPT_REQUESTS`] the oldest leave.
    pub(crate) fn keep_request(&self, request: RequestId, record: Value) {
        self.send(Job::Keep(request, record));
    }

    /// A disk that does not take it must not stop the supervisor.
    fn send(&self, job: Job) {
        if let Err(e) = self.jobs.try_send(job) {
            tracing::warn!("something is not kept, the disk is too slow: {e}");
        }
    }
}

fn learned_json(model: &str, learned: &Learned) -> Value {
    let steps = learned.steps.iter().map(|step| {
        let account = account_name(step.account);
        json!({"account": account, "lever": step.lever.name(), "from": step.from, "to": step.to})
    });
    json!({"model": model, "calm_ms": learned.calm.0, "steps": steps.collect::<Vec<_>>()})
}

/// `None` for anything but a file of ours: a limit that was misread would be worse than none.
fn parse_learned(text: &str) -> Option<Learned> {
    let value: Value = serde_json::from_str(text).ok()?;
    let step = |step: &Value| {
        Some(Lowered {
            account: [OomAccount::Host, OomAccount::Vram].into_iter().find(|a| step["account"] == account_name(*a))?,
            lever: CapLever::ALL.into_iter().find(|lever| step["lever"] == lever.name())?,
            from: step["from"].as_u64()?,
            to: step["to"].as_u64()?,
        })
    };
    let steps: Vec<Lowered> = value["steps"].as_array()?.iter().map(step).collect::<Option<_>>()?;
    (steps.len() <= MAX_LEARNED_STEPS).then_some(Learned { steps, calm: Millis(value["calm_ms"].as_u64()?) })
}

/// Host objects alone: no card is read yet.
fn truth_json(truth: &Truth) -> Value {
    let of_object = |(key, pairs): &(Key, VecDeque<Pair>)| {
        let pairs: Vec<[u64; 2]> = pairs.iter().map(|pair| [pair.uncorrected.0, pair.measured.0]).collect();
        json!({"object": key.object.name(), "uncorrected_and_measured_bytes": pairs})
    };
    let is_host = |(key, _): &&(Key, VecDeque<Pair>)| key.account == AccountId::Host;
    json!({"objects": truth.pairs.iter().filter(is_host).map(of_object).collect::<Vec<_>>()})
}

/// `None` for anything but a file of ours.
fn parse_truth(model: &str, text: &str) -> Option<Truth> {
    let value: Value = serde_json::from_str(text).ok()?;
    let pair = |pair: &Value| {
        let (uncorrected, measured) = (pair.get(0)?.as_u64()?, pair.get(1)?.as_u64()?);
        Some(Pair { uncorrected: Bytes(uncorrected), measured: Bytes(measured) })
    };
    let of_object = |of: &Value| {
        let object = Object::ALL.into_iter().find(|object| of["object"] == object.name())?;
        let pairs = of["uncorrected_and_measured_bytes"].as_array()?;
        let pairs: VecDeque<Pair> = pairs.iter().map(pair).collect::<Option<_>>()?;
        let is_bounded = pairs.len() <= MAX_MEASURED_STARTS;
        is_bounded.then(|| (Key { model_hash: model.to_owned(), account: AccountId::Host, object }, pairs))
    };
    let pairs: Vec<_> = value["objects"].as_array()?.iter().map(of_object).collect::<Option<_>>()?;
    (pairs.len() <= Object::ALL.len()).then_some(Truth { pairs })
}

fn read_speed_json(speed: &ReadSpeed) -> Value {
    let ReadSpeed { key, way, bytes_per_second } = speed;
    json!({
        "device": key.device,
        "file_bytes": key.file.0,
        "way": way.name(),
        "bytes_per_second": bytes_per_second.0,
    })
}

fn parse_read_speed(text: &str) -> Option<ReadSpeed> {
    let value: Value = serde_json::from_str(text).ok()?;
    let key = SpeedKey { device: value["device"].as_u64()?, file: Bytes(value["file_bytes"].as_u64()?) };
    let way = Way::ALL.into_iter().find(|way| value["way"] == way.name())?;
    Some(ReadSpeed { key, way, bytes_per_second: Bytes(value["bytes_per_second"].as_u64()?) })
}

fn account_name(account: OomAccount) -> &'static str {
    match account {
        OomAccount::Host => "host",
        OomAccount::Vram => "vram",
    }
}

fn read_bounded(path: &Path) -> io::Result<String> {
    match fs::metadata(path)?.len() {
        n_bytes if n_bytes > MAX_STATE_FILE_BYTES => Err(io::Error::other("it is too long")),
        _ => fs::read_to_string(path),
    }
}

/// Writes beside and renames: a reader finds the old file or the new one.
fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let beside = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)
}

fn prune(folder: &Path) -> io::Result<()> {
    let mut kept: Vec<PathBuf> = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    kept.sort(); // names begin with the time
    let n_over = kept.len().saturating_sub(MAX_KEPT_REQUESTS);
    kept.iter().take(n_over).try_for_each(fs::remove_file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(path: &Path) -> StateFolder {
        StateFolder { folder: Some(path.join("state")), model: "/models/a.gguf".into() }
    }

    #[test]
    fn what_was_learned_comes_back_and_other_models_do_not_see_it() {
        let temp = tempfile::tempdir().unwrap();
        let state = folder(temp.path());
        assert_eq!(state.load_learned(), Learned::default());
        let step = |account, lever| Lowered { account, lever, from: 8192, to: 4096 };
        let steps = CapLever::ALL.map(|lever| step(OomAccount::Vram, lever)).into_iter();
        let steps = steps.chain([step(OomAccount::Host, CapLever::Context)]).collect();
        let learned = Learned { steps, calm: Millis(77) };
        state.store_learned(&learned);
        assert_eq!(state.load_learned(), learned);
        let other = StateFolder { model: "/models/b.gguf".into(), ..folder(temp.path()) };
        assert_eq!(other.load_learned(), Learned::default());
        fs::write(state.learned_file().unwrap(), r#"{"calm_ms": 1, "steps": [{"account": "moon"}]}"#).unwrap();
        assert_eq!(state.load_learned(), Learned::default());
    }

    #[test]
    fn what_starts_held_is_read_again_and_only_if_it_is_whole() {
        let temp = tempfile::tempdir().unwrap();
        let state = folder(temp.path());
        assert_eq!(state.load_truth(), Truth::default());
        let key = |object| Key { model_hash: state.model.clone(), account: AccountId::Host, object };
        let pair = |uncorrected, measured| Pair { uncorrected: Bytes(uncorrected), measured: Bytes(measured) };
        let truth = Truth {
            pairs: vec![
                (key(Object::Activations), [pair(10, 11), pair(u64::MAX, 0)].into()),
                (key(Object::DenseWeights), [pair(7, 7)].into()),
            ],
        };
        state.store_truth(&truth);
        assert_eq!(state.load_truth(), truth);
        let too_many = vec![[1, 2]; MAX_MEASURED_STARTS + 1];
        for damaged in [
            String::new(),
            "{}".to_owned(),
            r#"{"objects": [{"object": "moon", "uncorrected_and_measured_bytes": []}]}"#.to_owned(),
            r#"{"objects": [{"object": "activations", "uncorrected_and_measured_bytes": [[1]]}]}"#.to_owned(),
            json!({"objects": [{"object": "activations", "uncorrected_and_measured_bytes": too_many}]}).to_string(),
        ] {
            fs::write(state.measured_file().unwrap(), &damaged).unwrap();
            assert_eq!(state.load_truth(), Truth::default(), "{damaged}");
        }
    }

    #[test]
    fn a_read_speed_comes_back_for_the_same_file_on_the_same_device() {
        let temp = tempfile::tempdir().unwrap();
        let state = folder(temp.path());
        let key = SpeedKey { device: 65_024, file: Bytes(7) };
        assert_eq!(state.load_read_speed(key), None);
        for way in Way::ALL {
            let speed = ReadSpeed { key, way, bytes_per_second: Bytes(3_100_000_000) };
            state.store_read_speed(&speed);
            assert_eq!(state.load_read_speed(key), Some(speed));
        }
        assert_eq!(state.load_read_speed(SpeedKey { device: 1, ..key }), None);
        assert_eq!(state.load_read_speed(SpeedKey { file: Bytes(8), ..key }), None);
        for text in ["", "{}", r#"{"device": -1, "file_bytes": 7, "way": "direct", "bytes_per_second": 1}"#, "[]"] {
            fs::write(state.file("read-speed").unwrap(), text).unwrap();
            assert_eq!(state.load_read_speed(key), None, "{text}");
        }
    }

    #[test]
    fn kept_requests_are_bounded_and_their_owners_alone() {
        use std::os::unix::fs::PermissionsExt;
        let temp = tempfile::tempdir().unwrap();
        let state = folder(temp.path());
        for request in 0..MAX_KEPT_REQUESTS as u64 + 3 {
            state.keep_request(RequestId(request), json!({"prompt": [1, 2]}));
        }
        let files: Vec<_> = fs::read_dir(temp.path().join("state/kept")).unwrap().map(|e| e.unwrap().path()).collect();
        assert_eq!(files.len(), MAX_KEPT_REQUESTS);
        assert_eq!(fs::metadata(&files[0]).unwrap().permissions().mode() & 0o777, 0o600);
        let record: Value = serde_json::from_str(&fs::read_to_string(&files[0]).unwrap()).unwrap();
        assert_eq!((&record["prompt"], &record["model"]), (&json!([1, 2]), &json!("/models/a.gguf")));
    }
}
