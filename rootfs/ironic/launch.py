"""Start Ironic's API and conductor in this one process.

Upstream's `ironic` command imports everything and then forks its worker, which costs memory and start-up time twice
on a small box. Here the same service object runs in the first process, on a database made when the image was built.
"""

import contextlib
import faulthandler
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading

DATABASE = '/var/lib/ironic/ironic.sqlite'
TEMPLATE = '/usr/share/ironic/empty.sqlite'
CONFIG = '/run/firstlight/ironic/ironic.conf'
# In seconds; a busy emulated box needs 60 to 200.
LONGEST_START = 300


class Damaged(Exception):
    """A database file that is none, or not a whole one."""


def schema(path, mode):
    """The schema revision of a database file."""
    with contextlib.closing(sqlite3.connect(f'file:{path}?mode={mode}', uri=True)) as database:
        return database.execute('SELECT version_num FROM alembic_version').fetchall()


def check(path):
    """The schema revision of a database that has been read from one end to the other."""
    try:
        with contextlib.closing(sqlite3.connect(f'file:{path}?mode=rw', uri=True)) as database:
            said = [row[0] for row in database.execute('PRAGMA quick_check')]
        if said != ['ok']:
            raise Damaged('; '.join(said[:3]))
        return schema(path, 'rw')
    except sqlite3.DatabaseError as error:
        # A table that is not there means an empty file: ours has them all from its first moment.
        lasting = ('SQLITE_CORRUPT', 'SQLITE_NOTADB', 'SQLITE_IOERR', 'SQLITE_ERROR')
        if error.sqlite_errorname.startswith(lasting):
            raise Damaged(str(error)) from error
        raise


def put_aside(path):
    """Keeps the damaged file, the last one only, for who wants to look; the agent tells of it."""
    # A journal belongs to the file beside it; the next database must not be rolled back by it.
    for end in ('-journal', '-wal', '-shm'):
        with contextlib.suppress(FileNotFoundError):
            os.remove(path + end)
    os.rename(path, path + '.damaged')
    os.utime(path + '.damaged')


def prepare_database(database=DATABASE, template=TEMPLATE, config=CONFIG):
    """A whole database or none: the copy gets its name only when its bytes are on the disk.

    A damaged one is replaced by an empty one: the agent tells Ironic of every node that it has written, without a write.
    """
    try:
        revision = check(database) if os.path.exists(database) else None
    except Damaged as damage:
        print(f'{database} is damaged and put aside: {damage}', file=sys.stderr)
        put_aside(database)
        revision = None
    if revision is None:
        new = database + '.new'
        shutil.copyfile(template, new)
        with open(new, 'rb+') as copy:
            os.fsync(copy.fileno())
        os.rename(new, database)
        directory = os.open(os.path.dirname(database), os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)
    # Not "ro" for ours: after a power cut the first to open it rolls a half-written transaction back.
    elif revision != schema(template, 'ro'):
        upgrade = 'from ironic.command.dbsync import main; main()'
        subprocess.run([sys.executable, '-c', upgrade, '--config-file', config, 'upgrade'], check=True)


def settle(connection, _record=None):
    """A commit outlives a power cut, and is one sync instead of four; who reads waits for no writer."""
    connection.execute('PRAGMA journal_mode = WAL').close()
    connection.execute('PRAGMA synchronous = FULL').close()


def keep_connections(_url, arguments, _options):
    """oslo.db opens the file anew for each transaction, and so reads its schema: a third of what it costs to write a node."""
    from sqlalchemy.pool import QueuePool
    arguments.update(poolclass=QueuePool, pool_pre_ping=False, max_overflow=-1)
    arguments['connect_args']['check_same_thread'] = False


def forget_transaction(_connection, record):
    """oslo.db's mark that BEGIN was said must not outlive the transaction, now that the connection does."""
    record.info.pop('in_transaction', None)


def one_by_one(session_for_write):
    """Writers of SQLite that meet fail, and try again after up to a second. All of them are threads of this process."""
    turn = threading.RLock()

    @contextlib.contextmanager
    def session_in_turn():
        with turn, session_for_write() as session:
            yield session
    return session_in_turn


def attach_virtual_media(self, context, node_id, device_type, image_url, image_download_source=None, topic=None):
    """As `ConductorAPI` of Ironic 39.0.0 has it, which takes `image_download_source` and says nothing of it to the conductor: that would keep
    a copy of each CD, and offer that to the BMC."""
    call = self._prepare_call(topic=topic, version='1.59').call
    return call(context, 'attach_virtual_media', node_id=node_id, device_type=device_type, image_url=image_url,
                image_download_source=image_download_source or 'local')


def main():
    # A start that hangs says where, in the pod's log, and is tried again.
    faulthandler.dump_traceback_later(LONGEST_START, exit=True)
    os.umask(0o027)
    # The image has no user database to look a home directory up in.
    os.environ['HOME'] = '/tmp'
    prepare_database()
    for name in ('certificates', 'http', 'tftp/master', 'images', 'logs'):
        os.makedirs(f'/var/lib/ironic/{name}', exist_ok=True)

    # First of all: this package chooses native threads, where the libraries' own default is eventlet.
    import ironic.command  # noqa: F401
    from ironic.common import service as ironic_service
    ironic_service.prepare_service('ironic', ['ironic', '--config-file', CONFIG])
    # Only now: the decorators of the conductor's periodic tasks read the configuration while they are imported.
    from ironic.conductor import rpc_service, rpcapi
    from ironic.db.sqlalchemy import api
    from oslo_config import cfg
    from oslo_db.sqlalchemy import engines
    from sqlalchemy import event
    from sqlalchemy.engine import Engine
    from sqlalchemy.pool import Pool
    engines._init_connection_args.dispatch_for('sqlite')(keep_connections)
    event.listen(Engine, 'connect', settle)
    event.listen(Pool, 'checkin', forget_transaction)
    api._session_for_write = one_by_one(api._session_for_write)
    rpcapi.ConductorAPI.attach_virtual_media = attach_virtual_media

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    service = rpc_service.RPCService(cfg.CONF.host, 'ironic.conductor.manager', 'ConductorManager', embed_api=True)
    service.start()
    faulthandler.cancel_dump_traceback_later()
    stop.wait()
    service.stop()
    # Worker threads may still wait for a ramdisk; their nodes are picked up again at the next start.
    os._exit(0)


if __name__ == '__main__':
    main()
