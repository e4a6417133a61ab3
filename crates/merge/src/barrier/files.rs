//! Which files are open, known to all partitions.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use roaring::RoaringBitmap;

use crate::files::FileId;

/// Bytes that a file takes in the table, and in a view, beside its path.
const TABLE_OVERHEAD: usize = size_of::<File>() + 2 * size_of::<FileId>() + size_of::<Arc<str>>();
const VIEW_OVERHEAD: usize = size_of::<Arc<str>>() + size_of::<bool>();

/// The files of one MERGE. A file is closed until a row in it changes.
///
/// One mutex, taken once a batch, guards everything.
#[derive(Debug, Default)]
pub(super) struct SharedFiles {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    ids: HashMap<Arc<str>, FileId>,
    files: Vec<File>,
    /// Files in the order in which they were opened.
    opened: Vec<FileId>,
}

#[derive(Debug)]
struct File {
    path: Arc<str>,
    open: bool,
}

/// What one partition knows of the files. It changes only when the partition asks.
#[derive(Debug, Default)]
pub(super) struct View {
    paths: Vec<Arc<str>>,
    open: Vec<bool>,
    /// How many of the opened files it knows of.
    seen: usize,
    /// Files that the last update found open.
    newly_opened: Vec<FileId>,
    /// Bytes of the view, and of what this partition was the first to put into the table.
    memory: usize,
}

impl View {
    pub(super) fn is_open(&self, file: FileId) -> bool {
        self.open[file as usize]
    }

    pub(super) fn path(&self, file: FileId) -> &str {
        &self.paths[file as usize]
    }

    /// Number of files.
    pub(super) fn len(&self) -> usize {
        self.paths.len()
    }

    pub(super) fn newly_opened(&self) -> &[FileId] {
        &self.newly_opened
    }

    pub(super) fn memory(&self) -> usize {
        self.memory
    }

    /// All files that are open.
    pub(super) fn opened(&self) -> RoaringBitmap {
        let files = self.open.iter().enumerate().filter(|(_, open)| **open);
        files.map(|(file, _)| file as FileId).collect()
    }
}

impl SharedFiles {
    /// Runs `change` on the table, then brings `view` up to date.
    pub(super) fn update<T>(&self, view: &mut View, change: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = self.table.lock();
        let known = table.files.len();
        let result = change(&mut table);
        let paths = |from: usize| table.files[from..].iter().map(|file| &file.path);
        let added = paths(known).map(|path| path.len() + TABLE_OVERHEAD);
        view.memory += added.sum::<usize>();
        view.memory += (table.files.len() - view.len()) * VIEW_OVERHEAD;
        let unknown = view.len();
        view.paths.extend(paths(unknown).cloned());
        view.open.resize(view.paths.len(), false);
        view.newly_opened.clear();
        view.newly_opened.extend(&table.opened[view.seen..]);
        view.seen = table.opened.len();
        for file in &view.newly_opened {
            view.open[*file as usize] = true;
        }
        result
    }

    /// Paths of the files in which something has changed.
    pub(super) fn opened(&self) -> Vec<String> {
        let table = self.table.lock();
        let opened = table.opened.iter();
        opened
            .map(|file| table.files[*file as usize].path.to_string())
            .collect()
    }
}

impl Table {
    /// The number of `path`.
    pub(super) fn intern(&mut self, path: &str) -> FileId {
        if let Some(id) = self.ids.get(path) {
            return *id;
        }
        let id = self.files.len() as FileId;
        let path: Arc<str> = path.into();
        self.ids.insert(Arc::clone(&path), id);
        self.files.push(File { path, open: false });
        id
    }

    pub(super) fn open(&mut self, file: FileId) {
        let entry = &mut self.files[file as usize];
        if !entry.open {
            entry.open = true;
            self.opened.push(file);
        }
    }
}
