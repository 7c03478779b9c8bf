"""What becomes of Ironic's database, with real files. Run: python3 rootfs/ironic/test_launch.py"""

import contextlib
import os
import random
import shutil
import sqlite3
import sys
import tempfile
import threading
import time
import unittest

sys.dont_write_bytecode = True
import launch  # noqa: E402


def make(path, revision='r1', rows=0):
    with sqlite3.connect(path) as database:
        database.execute('CREATE TABLE alembic_version (version_num TEXT)')
        database.execute('INSERT INTO alembic_version VALUES (?)', [revision])
        database.execute('CREATE TABLE nodes (name TEXT UNIQUE)')
        names = [(f'node-{number:05}' * 8,) for number in range(rows)]
        database.executemany('INSERT INTO nodes VALUES (?)', names)
    database.close()


class Database(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.template = os.path.join(self.folder.name, 'empty.sqlite')
        self.path = os.path.join(self.folder.name, 'ironic.sqlite')
        make(self.template)

    def prepare(self):
        launch.prepare_database(self.path, self.template, '/nonexistent')

    def nodes(self):
        with sqlite3.connect(self.path) as database:
            (count,) = database.execute('SELECT count(*) FROM nodes').fetchone()
        database.close()
        return count

    def damaged(self):
        return os.path.exists(self.path + '.damaged')

    def test_each_commit_is_synced_and_read_after_a_kill(self):
        database = sqlite3.connect(self.template)
        launch.settle(database)
        self.assertEqual(database.execute('PRAGMA synchronous').fetchone(), (2,))
        database.execute('INSERT INTO nodes VALUES (?)', ['acknowledged'])
        database.commit()
        # What a kill leaves: the commit is in the file beside the database.
        for end in ('', '-wal'):
            shutil.copyfile(self.template + end, self.path + end)
        database.close()
        self.prepare()
        self.assertEqual(self.nodes(), 1)

    def test_writers_take_turns_and_one_may_write_within_its_own(self):
        database = sqlite3.connect(self.template, check_same_thread=False, timeout=0)

        @contextlib.contextmanager
        def session_for_write():
            yield database

        session = launch.one_by_one(session_for_write)
        inside, most = [], []

        def write():
            for _ in range(50):
                with session(), session():
                    inside.append(1)
                    most.append(len(inside))
                    time.sleep(0)
                    inside.pop()
        writers = [threading.Thread(target=write) for _ in range(8)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        database.close()
        self.assertEqual(max(most), 1)

    def test_a_missing_database_is_made_and_a_whole_one_is_kept(self):
        self.prepare()
        self.assertEqual(self.nodes(), 0)
        os.remove(self.path)
        make(self.path, rows=10)
        self.prepare()
        self.assertEqual(self.nodes(), 10)
        self.assertFalse(self.damaged())

    def test_a_damaged_database_is_put_aside_and_made_anew(self):
        with open(self.template, 'rb') as template:
            whole = template.read()
        for content in (b'', b'x' * 4096, whole[:5000], whole[:100] + bytes(len(whole) - 100)):
            with open(self.path, 'wb') as file:
                file.write(content)
            with open(self.path + '-journal', 'wb') as file:
                file.write(b'of the damaged one')
            self.prepare()
            self.assertEqual(self.nodes(), 0, content[:20])
            self.assertFalse(os.path.exists(self.path + '-journal'))
            with open(self.path + '.damaged', 'rb') as file:
                self.assertEqual(file.read(), content)

    def test_a_page_that_was_lost_anywhere_is_noticed_or_does_no_harm(self):
        make(self.path, rows=2000)
        with open(self.path, 'rb') as file:
            whole = file.read()
        os.remove(self.path)
        for seed in range(40):
            page = random.Random(seed).randrange(len(whole) // 4096)
            with open(self.path, 'wb') as file:
                file.write(whole[:page * 4096] + bytes(4096) + whole[(page + 1) * 4096:])
            self.prepare()
            self.assertIn(self.nodes(), (0, 2000), f'page {page}')

    def test_a_database_that_is_in_use_is_not_taken_for_a_damaged_one(self):
        make(self.path, rows=3)
        holder = sqlite3.connect(self.path, isolation_level=None)
        holder.execute('BEGIN EXCLUSIVE')
        with self.assertRaises(sqlite3.OperationalError):
            self.prepare()
        holder.close()
        self.assertEqual(self.nodes(), 3)
        self.assertFalse(self.damaged())


if __name__ == '__main__':
    unittest.main()
