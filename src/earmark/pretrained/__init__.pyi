from .class_maps import ClassMap as ClassMap
from .class_maps import map_by_names as map_by_names
from .class_maps import read_class_map as read_class_map
from .network import Heard as Heard
from .network import NetworkFacts as NetworkFacts
from .network import PretrainedNetwork as PretrainedNetwork
from .network import open_network as open_network
